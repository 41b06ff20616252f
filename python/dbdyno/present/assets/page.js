// Draws the charts with the colours of the theme in force, and again when the theme changes.
(function () {
  "use strict";
  var root = document.documentElement;
  var specs = JSON.parse(document.getElementById("specs").textContent);
  var wanted = new URLSearchParams(location.search).get("theme");
  if (wanted === "dark" || wanted === "light") root.dataset.theme = wanted;

  function colour(name) {
    return getComputedStyle(root).getPropertyValue(name).trim();
  }

  // A copy of the specification: var(--x) becomes the theme's colour; y scales become logarithmic on demand.
  function themed(node, log, key) {
    if (typeof node === "string") {
      var match = /^var\((--[\w-]+)\)$/.exec(node);
      return match ? colour(match[1]) : node;
    }
    if (Array.isArray(node)) return node.map(function (n) { return themed(n, log, key); });
    if (node === null || typeof node !== "object") return node;
    var copy = {};
    Object.keys(node).forEach(function (k) {
      copy[k] = k === "values" || k === "datasets" ? node[k] : themed(node[k], log, k);
    });
    if (log && key === "scale" && copy.type === "linear") copy.type = "log";
    return copy;
  }

  function config() {
    var text = colour("--text"), muted = colour("--muted"), line = colour("--line");
    var font = getComputedStyle(document.body).fontFamily;
    return {
      background: "transparent",
      font: font,
      autosize: { type: "fit-x", contains: "padding" },
      view: { stroke: null },
      axis: {
        labelColor: muted, titleColor: muted, gridColor: line, domainColor: line, tickColor: line,
        labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", titlePadding: 8
      },
      axisX: { grid: false },
      text: { color: text, font: font }
    };
  }

  function draw(figure) {
    var plot = figure.querySelector(".plot");
    var spec = themed(specs[figure.id], figure.dataset.scale === "log", "");
    // ast: expressions are interpreted, not compiled; styles are in page.css: the policy permits neither eval nor
    // a style sheet that a script adds.
    var options = {
      mode: "vega-lite", renderer: "svg", actions: false, config: config(), ast: true, defaultStyle: false,
      tooltip: { theme: "custom", disableDefaultStyle: true }
    };
    return vegaEmbed(plot, spec, options).then(
      function (result) { figure.dataset.drawn = "yes"; return result; },
      function (error) { figure.dataset.drawn = "failed"; plot.textContent = "This chart failed: " + error; throw error; }
    );
  }

  function drawAll() {
    return Promise.all(Array.prototype.map.call(document.querySelectorAll("figure.chart"), draw));
  }

  document.querySelectorAll("button.log").forEach(function (button) {
    button.hidden = false;
    button.addEventListener("click", function () {
      var figure = button.closest("figure");
      var log = figure.dataset.scale !== "log";
      figure.dataset.scale = log ? "log" : "linear";
      button.setAttribute("aria-pressed", String(log));
      draw(figure);
    });
  });

  // Every select chooses for all choices that have the same option.
  function pick(key) {
    document.querySelectorAll(".choice").forEach(function (choice) {
      var options = Array.prototype.filter.call(choice.children, function (part) { return part.dataset.pick; });
      if (!options.some(function (part) { return part.dataset.pick === key; })) return;
      options.forEach(function (part) { part.hidden = part.dataset.pick !== key; });
      var select = choice.querySelector("select.pick");
      if (select) select.value = key;
    });
    if (window.dbdynoStrips) window.dbdynoStrips();
  }
  document.querySelectorAll("select.pick").forEach(function (select) {
    select.closest("label").hidden = false;
    select.addEventListener("change", function () { pick(select.value); });
  });
  if (window.dbdynoStrips) window.dbdynoStrips();

  var system = matchMedia("(prefers-color-scheme: dark)");
  var toggle = document.getElementById("theme");
  if (toggle) {
    toggle.hidden = false;
    toggle.addEventListener("click", function () {
      var dark = root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
      root.dataset.theme = dark ? "light" : "dark";
      drawAll();
    });
  }
  system.addEventListener("change", drawAll);
  drawAll().then(function () { root.dataset.ready = "yes"; });
})();
