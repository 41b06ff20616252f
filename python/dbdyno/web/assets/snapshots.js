// The load between snapshots over time. A span that is selected is in the address; the page is loaded anew.
(function () {
  "use strict";
  var served = document.documentElement.hasAttribute("data-served"), comparing = false;
  function given(id) { return JSON.parse(document.getElementById(id).textContent); }
  function by(id) { return document.getElementById(id); }
  var drawn = given("time-chart"), state = given("time-state"), other = by("time-other");
  if (!drawn.times) return;
  var chart = window.labTimeline(by("time-plot"), drawn, {
    label: "Load between snapshots over time", unit: drawn.unit, height: innerWidth < 520 ? 180 : 240, onSelect: selected
  });

  function iso(seconds) { return new Date(Math.round(seconds) * 1000).toISOString().replace(".000Z", "Z"); }

  function go(names, pair, how) {
    var q = new URLSearchParams(location.search);
    names.forEach(function (name, n) { if (pair) q.set(name, iso(pair[n])); else q.delete(name); });
    if (how !== undefined) q.set("against", how);
    location.search = q.toString();
  }

  function selected(a, b) {
    if (!served) { state.span = a === null ? null : [a, b]; return; }
    if (comparing && a !== null) go(["against-from", "against-to"], [a, b], "span");
    else go(["from", "to"], a === null ? null : [a, b]);
  }

  document.querySelector(".tools").hidden = false;
  by("time-in").addEventListener("click", function () { if (state.span) chart.zoom(state.span[0], state.span[1]); });
  by("time-out").addEventListener("click", function () { chart.zoom(null); });
  if (served) {
    by("time-all").addEventListener("click", function () { go(["from", "to", "against", "against-from", "against-to"], null); });
    other.setAttribute("aria-pressed", "false");
    other.addEventListener("click", function () {
      comparing = !comparing;
      other.setAttribute("aria-pressed", String(comparing));
    });
    by("time-form").elements.against.addEventListener("change", function (event) {
      by("time-others").hidden = event.target.value !== "span";
    });
  } else {
    by("time-all").hidden = other.hidden = true;
  }
  if (state.span) chart.select(state.span[0], state.span[1]);
  if (state.against) chart.against(state.against[0], state.against[1]);
})();
