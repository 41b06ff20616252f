// Draws the charts. Their colours are the page's custom properties: they follow the theme, on paper the light one.
(function () {
  "use strict";
  var root = document.documentElement;
  var specs = JSON.parse(document.getElementById("specs").textContent);
  var wanted = new URLSearchParams(location.search).get("theme");
  if (wanted === "dark" || wanted === "light") root.dataset.theme = wanted;

  // A copy of the specification: y scales become logarithmic on demand.
  function scaled(node, log, key) {
    if (Array.isArray(node)) return node.map(function (n) { return scaled(n, log, key); });
    if (node === null || typeof node !== "object") return node;
    var copy = {};
    Object.keys(node).forEach(function (k) {
      copy[k] = k === "values" || k === "datasets" ? node[k] : scaled(node[k], log, k);
    });
    if (log && key === "scale" && copy.type === "linear") copy.type = "log";
    return copy;
  }

  function config() {
    var text = "var(--text)", muted = "var(--muted)", line = "var(--line)";
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

  // A figure can have two forms, one of them hidden. Each is drawn when it is first shown.
  function draw(figure) {
    var form = figure.querySelector(".form:not([hidden])"), plot = form.querySelector(".plot");
    var spec = scaled(specs[form.dataset.spec], figure.dataset.scale === "log", "");
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

  // A chart that is folded away or not chosen has no width to be drawn in: it is drawn when it comes in sight.
  function drawShown() {
    return Promise.all(Array.prototype.filter.call(document.querySelectorAll("figure.chart"), function (figure) {
      return figure.offsetWidth > 0 && !figure.dataset.drawn;
    }).map(draw));
  }

  document.addEventListener("toggle", drawShown, true);

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

  document.querySelectorAll("button.switch").forEach(function (button) {
    button.hidden = false;
    button.addEventListener("click", function () {
      var figure = button.closest("figure");
      figure.querySelectorAll(".form").forEach(function (form) { form.hidden = !form.hidden; });
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      draw(figure);
    });
  });

  // Changes the address, which can be sent to others, without a further step back in the history.
  function address(change) {
    var url = new URL(location.href);
    change(url);
    try { history.replaceState(null, "", url); } catch (error) { /* a browser that forbids it in files */ }
  }

  // One selector for all choices of the page. The address has the choice, unless it is the first.
  var chosen = document.getElementById("pick");
  function pick() {
    document.querySelectorAll(".of").forEach(function (part) { part.hidden = part.dataset.pick !== chosen.value; });
    if (window.dbdynoStrips) window.dbdynoStrips();
    if (window.dbdynoFlames) window.dbdynoFlames();
    drawShown();
  }
  function show(url) {
    if (chosen.selectedIndex > 0) url.searchParams.set("show", chosen.value); else url.searchParams.delete("show");
  }
  function noted() { address(show); }
  // A server sends one option at a time: the page of another one opens where this one was left.
  var LEFT = "dbdyno-left";
  function go() {
    var url = new URL(location.href);
    show(url);
    url.hash = "";  // else the browser goes to that part once the page is there
    var open = Array.from(document.querySelectorAll("details[open][id]"), function (d) { return d.id; });
    sessionStorage.setItem(LEFT, JSON.stringify({ path: url.pathname, y: scrollY, open: open }));
    location.replace(url);
  }
  function back() {
    var left = JSON.parse(sessionStorage.getItem(LEFT));
    sessionStorage.removeItem(LEFT);
    if (!left || left.path !== location.pathname) return false;
    left.open.forEach(function (id) { if (document.getElementById(id)) document.getElementById(id).open = true; });
    chosen.focus({ preventScroll: true });
    scrollTo(0, left.y);
    return true;
  }
  if (chosen && "elsewhere" in chosen.dataset) {
    chosen.closest("label").hidden = false;
    chosen.addEventListener("change", go);
  } else if (chosen) {
    chosen.closest("label").hidden = false;
    chosen.addEventListener("change", function () { pick(); noted(); });
    var asked = new URLSearchParams(location.search).get("show");
    Array.prototype.forEach.call(chosen.options, function (option) { if (option.value === asked) option.selected = true; });
    if (chosen.selectedIndex > 0) pick();  // asked for, or the browser remembered it
  }
  if (window.dbdynoStrips) window.dbdynoStrips();
  if (window.dbdynoFlames) window.dbdynoFlames();

  // A link to something that is folded away or not chosen brings it in sight.
  function reveal() {
    var part = document.getElementById(location.hash.slice(1));
    for (var node = part; node; node = node.parentElement) {
      if (node.tagName === "DETAILS") node.open = true;
      if (chosen && node.hidden && node.classList.contains("of")) {
        chosen.value = node.dataset.pick;
        pick();
        noted();
      }
    }
    if (part) part.scrollIntoView();
  }
  addEventListener("hashchange", reveal);
  document.addEventListener("click", function (event) {
    var link = event.target.closest("a[href]"), head = event.target.closest("summary");
    if (link && link.hash && link.href === location.href) reveal();  // again: the address does not change
    if (head && !link && head.parentElement.id) {
      var id = "#" + head.parentElement.id, closes = head.parentElement.open;
      if (!closes || location.hash === id) address(function (url) { url.hash = closes ? "" : id; });
    }
  });

  // The contents mark the section in sight: the last one that begins above the upper third of the window.
  var links = Array.prototype.slice.call(document.querySelectorAll(".toc ol a"));
  function mark() {
    var now = null;
    links.forEach(function (link) {
      var part = document.getElementById(link.hash.slice(1));
      if (part && part.getBoundingClientRect().top < innerHeight / 3) now = link;
    });
    links.forEach(function (link) {
      if (link === now) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    });
  }
  addEventListener("scroll", mark, { passive: true });
  mark();

  var system = matchMedia("(prefers-color-scheme: dark)");
  var toggle = document.getElementById("theme");
  if (toggle) {
    toggle.hidden = false;
    toggle.addEventListener("click", function () {
      var dark = root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
      root.dataset.theme = dark ? "light" : "dark";
    });
  }
  var returned = chosen && "elsewhere" in chosen.dataset && back();
  if (!returned) reveal();
  drawShown().then(function () {
    if (location.hash && !returned) reveal();  // the charts above it are as high as they stay
    root.dataset.ready = "yes";
  });
})();
