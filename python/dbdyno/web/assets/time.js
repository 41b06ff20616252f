// Time travel: the span that is selected in the chart is in the address, and the tables below are of it.
(function () {
  "use strict";
  var root = document.documentElement, served = root.hasAttribute("data-served");
  function given(id) { return JSON.parse(document.getElementById(id).textContent); }
  function by(id) { return document.getElementById(id); }
  var drawn = given("time-chart"), state = given("time-state"), form = by("time-form"), status = by("time-status");
  var main = document.querySelector("main"), over = by("over-time"), other = by("time-other"), asking = null, zone_s = 0;
  if (!drawn.times) return;
  zone_s = drawn.zone.offset_s;

  var chart = window.labTimeline(by("time-plot"), drawn, {
    label: "Active sessions over time", unit: "active sessions", height: innerWidth < 520 ? 200 : 280, onSelect: selected
  });

  function iso(seconds) { return new Date(Math.round(seconds) * 1000).toISOString().replace(".000Z", "Z"); }

  // The address of what the page shows, or is to show.
  function query(span, against, beside) {
    var q = new URLSearchParams(location.search);
    ["from", "to", "against", "against-from", "against-to", "save"].forEach(function (name) { q.delete(name); });
    if (span) { q.set("from", iso(span[0])); q.set("to", iso(span[1])); }
    if (against) q.set("against", against);
    if (against === "span" && beside) { q.set("against-from", iso(beside[0])); q.set("against-to", iso(beside[1])); }
    var text = q.toString();
    return text ? "?" + text : "";
  }

  function against() { return new URLSearchParams(location.search).get("against") || ""; }

  function go(search) {
    if (search !== location.search) history.pushState(null, "", location.pathname + search);
    load();
  }

  function selected(a, b) {
    var span = a === null ? null : [a, b];
    if (!served) { state.span = span; mark(); return; }
    if (other.getAttribute("aria-pressed") === "true" && span) {
      chart.select.apply(null, state.span || [null]);
      press(false);
      go(query(state.span, "span", span));
    } else {
      go(query(span, against(), state.against));
    }
  }

  function press(on) { other.setAttribute("aria-pressed", String(on)); }

  // Markup of the server, with its styles as rules of the elements: the page's policy permits no attributes of style.
  function nodes(markup) {
    var body = new DOMParser().parseFromString(markup, "text/html").body;
    body.querySelectorAll("[data-style]").forEach(function (e) { e.style.cssText = e.dataset.style; });
    return Array.from(body.childNodes);
  }

  function ask(more) {
    var search = location.search + (more ? (location.search ? "&" : "?") + more : "");
    return fetch(location.pathname + "/span" + search, {
      headers: { Accept: "application/json" }, signal: asking.signal
    }).then(function (answer) { return answer.json(); }).then(function (answer) {
      if (answer.error) throw new Error(answer.error + (answer.cure ? ". What to do: " + answer.cure + "." : ""));
      return answer;
    });
  }

  function load() {
    if (asking) asking.abort();
    asking = new AbortController();
    main.setAttribute("aria-busy", "true");
    status.textContent = "";
    ask("").then(function (answer) {
      state.span = answer.span;
      state.against = answer.against;
      put(nodes(answer.html));
      mark();
      main.removeAttribute("aria-busy");
      root.dataset.shown = location.search;
    }).catch(failed);
  }

  function failed(error) {
    if (error.name === "AbortError") return;
    main.removeAttribute("aria-busy");
    status.textContent = error instanceof TypeError ? "The server cannot be reached." : error.message;
  }

  function put(parts) {
    var open = Array.from(main.querySelectorAll("details[id][open]"), function (d) { return d.id; });
    while (over.nextSibling) over.nextSibling.remove();
    over.after.apply(over, parts);
    window.dbdynoTables(main);
    open.forEach(function (id) { if (by(id)) by(id).open = true; });
  }

  // The chart, the fields and the links that keep the address follow the span.
  function mark() {
    chart.select.apply(null, state.span || [null]);
    chart.against.apply(null, state.against || [null]);
    by("time-in").disabled = !state.span;
    by("time-in").textContent = state.against ? "Zoom to B" : "Zoom to the span";
    if (!form) return;
    by("time-all").disabled = !state.span;
    fields("from", "to", state.span || [drawn.times[0], drawn.times[drawn.times.length - 1]]);
    form.elements.against.value = against();
    by("time-others").hidden = against() !== "span";
    if (state.against) fields("against-from", "against-to", state.against);
    var keep = document.querySelector("a.keep"), q = new URLSearchParams(location.search);
    q.set("save", "1");
    if (keep) keep.search = q.toString();
  }

  function fields(first, second, pair) {
    [first, second].forEach(function (name, n) { form.elements[name].value = iso(pair[n] + zone_s).replace("Z", ""); });
  }

  function typed(name) {
    var value = form.elements[name].value;
    return value ? Date.parse(value + "Z") / 1000 - zone_s : null;
  }

  document.addEventListener("toggle", function (event) {
    var part = event.target;
    if (!served || !part.open || part.dataset.read || state.late.indexOf(part.id) < 0) return;
    part.dataset.read = "yes";
    if (!asking) asking = new AbortController();
    ask("part=" + encodeURIComponent(part.id)).then(function (answer) {
      var head = part.querySelector("summary");
      while (head.nextSibling) head.nextSibling.remove();
      head.after.apply(head, nodes(answer.html));
      window.dbdynoTables(part);
    }).catch(function (error) { delete part.dataset.read; failed(error); });
  }, true);

  over.querySelector(".tools").hidden = false;
  by("time-in").addEventListener("click", function () { if (state.span) chart.zoom(state.span[0], state.span[1]); });
  by("time-out").addEventListener("click", function () { chart.zoom(null); });
  if (served) {
    by("time-all").addEventListener("click", function () { go(query(null, "", null)); });
    other.addEventListener("click", function () { press(other.getAttribute("aria-pressed") !== "true"); });
    form.elements.against.addEventListener("change", function () {
      var how = form.elements.against.value;
      by("time-others").hidden = how !== "span";
      if (how !== "span") go(query(state.span, how, null));
    });
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      var pair = [typed("from"), typed("to")], how = form.elements.against.value, beside = [typed("against-from"), typed("against-to")];
      go(query(pair[0] === null || pair[1] === null ? state.span : pair, how, beside[0] === null || beside[1] === null ? null : beside));
    });
    addEventListener("popstate", load);
  }
  mark();
  root.dataset.shown = location.search;
})();
