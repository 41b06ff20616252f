/* Keeps the page of something that was started up to date, and goes on to its live view. */
(function () {
  "use strict";
  var EVERY_MS = 1000;
  var record = document.getElementById("start");
  if (!record || !document.documentElement.hasAttribute("data-served")) return;
  var start = JSON.parse(record.textContent);
  var words = document.querySelector("header .lead");
  var links = document.getElementById("links");
  var output = document.getElementById("output");
  var stop = document.getElementById("stop");
  var known = links.children.length;
  words.setAttribute("role", "status");

  function show(state) {
    if (words.textContent !== state.words) words.textContent = state.words;
    if (output.textContent !== state.output) output.textContent = state.output;
    stop.hidden = !state.alive;
    var shown = JSON.stringify(state.links);
    if (links.dataset.shown !== shown) {  // not anew each time: one may have the focus
      links.dataset.shown = shown;
      links.replaceChildren.apply(links, state.links.map(item));
    }
    if (start.follow && state.alive && !known && state.links.length === 1) {
      location.replace(state.links[0].path);
    } else if (state.alive) {
      setTimeout(look, EVERY_MS);
    }
  }

  function item(link) {
    var line = document.createElement("li");
    var anchor = document.createElement("a");
    anchor.href = link.path;
    anchor.textContent = link.text;
    line.append(anchor);
    return line;
  }

  function look() {
    fetch("/start/state?start=" + encodeURIComponent(start.id), {headers: {Accept: "application/json"}})
      .then(function (answer) { return answer.ok ? answer.json() : Promise.reject(answer.status); })
      .then(show)
      .catch(function () {
        words.textContent = "The server of this page does not answer. What was started goes on.";
        setTimeout(look, 5 * EVERY_MS);
      });
  }

  look();
})();
