// Time travel: the span that is selected in the chart is in the address, and what is below is of it. With parts that
// are read late, the server answers for a span alone; without, the page is loaded anew.
(function () {
  "use strict";
  var root = document.documentElement, served = root.hasAttribute("data-served"), LEFT = "dbdyno-time-left";
  function given(id) { return JSON.parse(document.getElementById(id).textContent); }
  function by(id) { return document.getElementById(id); }
  var drawn = given("time-chart"), state = given("time-state"), form = by("time-form"), status = by("time-status");
  var main = document.querySelector("main"), over = by("over-time"), other = by("time-other"), asking = null;
  if (!drawn.times) return;

  var chart = window.labTimeline(by("time-plot"), drawn, {
    label: by("over-time-title").textContent + " over time", unit: drawn.unit, height: innerWidth < 520 ? 200 : 280,
    onSelect: served ? selected : null, onChoosing: function (on) { other.setAttribute("aria-pressed", String(on)); }
  });

  function iso(seconds) { return new Date(Math.round(seconds) * 1000).toISOString().replace(".000Z", "Z"); }

  // The address of what the page shows, or is to show. An end that is null is that of the whole time.
  function query(span, against, beside) {
    var q = new URLSearchParams(location.search);
    ["from", "to", "against", "against-from", "against-to", "save"].forEach(function (name) { q.delete(name); });
    function ends(prefix, pair) {
      ["from", "to"].forEach(function (name, n) { if (pair && pair[n] !== null) q.set(prefix + name, iso(pair[n])); });
    }
    ends("", span);
    if (against) q.set("against", against);
    if (against === "span") ends("against-", beside);
    var text = q.toString();
    return text ? "?" + text : "";
  }

  function against() { return new URLSearchParams(location.search).get("against") || ""; }

  function go(search) {
    if (!state.late) {
      sessionStorage.setItem(LEFT, JSON.stringify({ path: location.pathname, y: scrollY, chart: chart.position() }));
      location.assign(location.pathname + search);
      return;
    }
    if (search !== location.search) history.pushState(null, "", location.pathname + search);
    load();
  }

  // A page that was loaded anew goes on where the one before was left.
  function back() {
    var left = JSON.parse(sessionStorage.getItem(LEFT));
    sessionStorage.removeItem(LEFT);
    if (!left || left.path !== location.pathname) return;
    chart.goOn(left.chart);
    scrollTo(0, left.y);
  }

  function selected(from, to, isBaseline) {
    var pair = from === null ? null : [from, to];
    if (isBaseline) go(query(state.span, "span", pair));
    else go(query(pair, against(), state.against));
  }

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
      Object.assign(state, { span: answer.span, against: answer.against, fields: answer.fields });
      put(nodes(answer.html));
      status.replaceChildren.apply(status, nodes(answer.notes));
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
    Object.keys(state.fields).forEach(function (name) { form.elements[name].value = state.fields[name]; });
    form.elements.against.value = against();
    by("time-others").hidden = against() !== "span";
    var keep = document.querySelector("a.keep"), q = new URLSearchParams(location.search);
    q.set("save", "1");
    if (keep) keep.search = q.toString();
  }

  function typed(first, second) {
    return [first, second].map(function (name) {
      var value = form.elements[name].value;
      return value ? Date.parse(value + "Z") / 1000 - drawn.zone.offset_s : null;
    });
  }

  document.addEventListener("toggle", function (event) {
    var part = event.target;
    if (!served || !state.late || !part.open || part.dataset.read || state.late.indexOf(part.id) < 0) return;
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
    other.addEventListener("click", function () { chart.choose(other.getAttribute("aria-pressed") !== "true"); });
    form.elements.against.addEventListener("change", function () {
      var how = form.elements.against.value;
      by("time-others").hidden = how !== "span";
      if (how !== "span") go(query(state.span, how, null));
    });
  }
  mark();
  if (served && state.late) {
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      go(query(typed("from", "to"), form.elements.against.value, typed("against-from", "against-to")));
    });
    addEventListener("popstate", load);
  } else if (served) {
    addEventListener("pageshow", function (event) { if (event.persisted) mark(); });
    back();
  }
  root.dataset.shown = location.search;
})();
