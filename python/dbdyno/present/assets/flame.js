// Flame graphs: drawn with elements, of which only those wide enough to be seen exist. On a narrow screen the root is
// on top (icicle). Search, zoom and every frame can be reached with keys.
window.dbdynoFlames = (function () {
  "use strict";
  var all = JSON.parse(document.getElementById("flames").textContent);
  var HIGH = 20, LEAST_PX = 2, NARROW_PX = 600;

  function made(name, parent, words) {
    var node = document.createElement(name);
    if (words) node.textContent = words;
    parent.appendChild(node);
    return node;
  }

  function percent(part) {
    var shown = 100 * part;
    return (Math.abs(shown) >= 10 ? shown.toFixed(0) : shown.toFixed(Math.abs(shown) >= 1 ? 1 : 2)) + " %";
  }

  // [name, value, difference, children] as an object that knows its parent and where it begins.
  function grown(data, raw, parent, start, depth) {
    var node = {
      text: data.names[raw[0]], value: raw[1], delta: raw[2], parent: parent, start: start, depth: depth, children: []
    };
    var at = start;
    (raw[3] || []).forEach(function (child) {
      var next = grown(data, child, node, at, depth + 1);
      node.children.push(next);
      at += next.value;
    });
    return node;
  }

  function walk(node, visit) {
    if (visit(node) !== false) node.children.forEach(function (child) { walk(child, visit); });
  }

  function parts(node) {
    var cut = node.text.indexOf("`");
    return cut < 0 ? ["", node.text] : [node.text.slice(0, cut), node.text.slice(cut + 1)];
  }

  function Flame(figure) {
    var data = all[figure.dataset.flame];
    var root = grown(data, data.root, null, 0, 0), top = root, sought = "", focused = root;
    var tools = figure.querySelector(".tools"), box = figure.querySelector(".frames");
    var search = tools.querySelector("input"), reset = tools.querySelector("button");
    var found = tools.querySelector("output"), detail = figure.querySelector(".frame");
    var elements = new Map();
    tools.hidden = false;

    function words(node) {
      var named = parts(node), self = node.value;
      node.children.forEach(function (child) { self -= child.value; });
      var line = named[1] + (named[0] ? " (" + named[0] + ")" : "") + ": " + percent(node.value / root.value) +
        ", itself " + percent(Math.max(0, self) / root.value);
      if (data.scale) line += ", " + written(node.value * data.scale) + " " + data.unit;
      if (data.compared) line += "; difference " + signed(node.delta * data.scale) + " " + data.unit;
      return line;
    }

    function written(value) { return Number(value.toPrecision(3)).toString(); }
    function signed(value) { return (value >= 0 ? "+" : "") + written(value); }

    function hit(node) { return sought !== "" && node.text.toLowerCase().indexOf(sought) >= 0; }

    function paint(node, element) {
      var hue = data.colours[parts(node)[0]] || "client", strength = 38;
      if (data.compared) {
        hue = node.delta > 0 ? "runq" : "run";
        strength = Math.min(75, Math.round(6 + 160 * Math.abs(node.delta) / root.value));
        if (!node.delta) strength = 0;
      }
      element.style.background = "color-mix(in srgb,var(--" + hue + ") " + strength + "%,var(--card))";
    }

    function place(node, wide, icicle, deepest) {
      var x = (node.start - top.start) / top.value, width = node.value / top.value;
      if (node.depth < top.depth) { x = 0; width = 1; }
      if (width * wide < LEAST_PX) return false;
      var element = made("div", box, parts(node)[1]);
      elements.set(node, element);
      element.setAttribute("role", "treeitem");
      element.setAttribute("aria-level", node.depth + 1);
      element.setAttribute("aria-label", words(node));
      element.title = words(node);
      element.tabIndex = node === focused ? 0 : -1;
      element.className = (node.depth < top.depth ? "above" : "") + (hit(node) ? " hit" : "");
      element.style.left = 100 * x + "%";
      element.style.width = 100 * width + "%";
      element.style.top = HIGH * (icicle ? node.depth : deepest - node.depth) + "px";
      paint(node, element);
      element.addEventListener("click", function () { focused = node; zoom(node); });
      element.addEventListener("focus", function () { detail.textContent = words(node); });
      element.addEventListener("mouseenter", function () { detail.textContent = words(node); });
      return true;
    }

    function draw() {
      var wide = box.clientWidth;
      if (!wide) return;
      var icicle = innerWidth < NARROW_PX, deepest = top.depth, keep = box.contains(document.activeElement);
      walk(top, function (node) {
        if (node.value / top.value * wide < LEAST_PX) return false;
        deepest = Math.max(deepest, node.depth);
        return true;
      });
      box.textContent = "";
      elements.clear();
      box.style.height = HIGH * (deepest + 1) + "px";
      box.dataset.way = icicle ? "icicle" : "flame";
      for (var node = top.parent; node; node = node.parent) place(node, wide, icicle, deepest);
      walk(top, function (node) { return place(node, wide, icicle, deepest); });
      if (!elements.has(focused)) { focused = top; elements.get(top).tabIndex = 0; }
      if (keep) elements.get(focused).focus();
      reset.disabled = top === root;
      figure.dataset.drawn = "yes";
    }

    function zoom(node) {
      top = node;
      draw();
      detail.textContent = words(node);
    }

    function look() {
      var sum = 0;
      sought = search.value.trim().toLowerCase();
      walk(root, function (node) {
        if (!hit(node)) return true;
        sum += node.value;
        return false;
      });
      found.textContent = sought === "" ? "" : "matched: " + percent(sum / root.value);
      draw();
    }

    // The frame beside, above or below, as it is seen.
    function beside(way) {
      var up = way === "ArrowUp" ? box.dataset.way === "flame" : box.dataset.way !== "flame";
      if (way === "ArrowUp" || way === "ArrowDown") {
        if (!up) return focused.parent;
        return focused.children.filter(function (n) { return elements.has(n); }).sort(function (a, b) {
          return b.value - a.value;
        })[0];
      }
      var row = Array.from(elements.keys()).filter(function (n) { return n.depth === focused.depth; });
      row.sort(function (a, b) { return a.start - b.start; });
      return row[row.indexOf(focused) + (way === "ArrowRight" ? 1 : -1)];
    }

    box.addEventListener("keydown", function (event) {
      if (event.key === "Enter" || event.key === " ") zoom(focused);
      else if (event.key === "Escape") zoom(root);
      else if (event.key === "/") search.focus();
      else if (event.key.indexOf("Arrow") === 0) {
        var next = beside(event.key);
        if (next && elements.has(next)) {
          elements.get(focused).tabIndex = -1;
          focused = next;
          elements.get(next).tabIndex = 0;
          elements.get(next).focus();
        }
      } else return;
      event.preventDefault();
    });
    search.addEventListener("input", look);
    search.addEventListener("keydown", function (event) {
      if (event.key === "Escape") { search.value = ""; look(); }
    });
    reset.addEventListener("click", function () { zoom(root); });
    return draw;
  }

  var draws = Array.from(document.querySelectorAll("figure.flame")).map(Flame);
  function redraw() { draws.forEach(function (draw) { draw(); }); }
  addEventListener("resize", redraw);
  document.addEventListener("toggle", redraw, true);
  return redraw;
})();
