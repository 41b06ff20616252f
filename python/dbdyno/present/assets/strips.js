// The heat strip: one path a part of time, so that sixty sessions of sixty pieces are a dozen elements.
window.dbdynoStrips = (function () {
  "use strict";
  var SVG = "http://www.w3.org/2000/svg";
  var all = JSON.parse(document.getElementById("strips").textContent);
  var tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.appendChild(tip);

  function node(name, attributes) {
    var made = document.createElementNS(SVG, name);
    Object.keys(attributes).forEach(function (k) {
      if (k === "style") made.style.cssText = attributes[k];  // the page's policy forbids the attribute
      else made.setAttribute(k, attributes[k]);
    });
    return made;
  }

  function line(parent, words, name) {
    var made = document.createElement("div");
    made.textContent = words;
    if (name) made.className = name;
    parent.appendChild(made);
    return made;
  }

  // The outline of all rectangles of one part; a row is 1 high, its first part at the bottom.
  function outline(data, part) {
    var path = "";
    data.pieces.forEach(function (row, r) {
      row.forEach(function (shares, x) {
        if (!shares || !shares[part]) return;
        var below = 0;
        for (var p = 0; p < part; p++) below += shares[p];
        var high = 0.9 * shares[part] / 100;
        var top = r + 0.95 - 0.9 * below / 100 - high;
        path += "M" + x + " " + top.toFixed(3) + "h1v" + high.toFixed(3) + "h-1z";
      });
    });
    return path;
  }

  function seconds(value) { return String(Math.round(10 * value) / 10); }

  // The clock of an observation, else seconds. The clock is local time as if it were UTC.
  function moment(data, s) {
    return data.clock === null ? seconds(s) + " s" : new Date(data.clock + 1000 * s).toISOString().slice(11, 19);
  }

  function span(data, from, to) {
    return (data.clock === null ? seconds(from) : moment(data, from)) + " to " + moment(data, to);
  }

  function show(data, row, piece, x, y) {
    var wide = (data.to - data.from) / data.pieces[row].length;
    var from = data.from + piece * wide;
    tip.textContent = "";
    line(tip, data.names[row] + ", " + span(data, from, from + wide), "name");
    var shares = data.pieces[row][piece];
    if (!shares) line(tip, "not seen");
    else data.parts.forEach(function (part, p) { if (shares[p]) line(tip, part.name + " " + shares[p] + " %"); });
    tip.hidden = false;
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = Math.max(4, Math.min(y + 14, innerHeight - tip.offsetHeight - 8)) + "px";
  }

  function hide() { tip.hidden = true; }

  function hover(svg, data) {
    var rows = data.pieces.length, count = data.pieces[0].length, at = [0, 0];
    function move() {
      var where = svg.getBoundingClientRect();
      show(data, at[0], at[1], where.left + (at[1] + 0.5) * where.width / count, where.top + (at[0] + 0.5) * where.height / rows);
    }
    svg.addEventListener("pointermove", function (event) {
      var where = svg.getBoundingClientRect();
      at = [
        Math.max(0, Math.min(rows - 1, Math.floor((event.clientY - where.top) / where.height * rows))),
        Math.max(0, Math.min(count - 1, Math.floor((event.clientX - where.left) / where.width * count)))
      ];
      show(data, at[0], at[1], event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", function (event) {
      var step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      at = [Math.max(0, Math.min(rows - 1, at[0] + step[0])), Math.max(0, Math.min(count - 1, at[1] + step[1]))];
      move();
    });
  }

  function labels(parent, data, high) {
    var every = Math.max(1, Math.ceil(13 / high));
    var column = line(parent, "", "names");
    data.names.forEach(function (name, r) {
      if (r % every) return;
      line(column, name.replace("session ", "")).style.top = (r + 0.5) * high + "px";
    });
  }

  function axis(parent, data) {
    var span = data.to - data.from, rough = span / (data.clock === null ? 8 : 4), power = Math.pow(10, Math.floor(Math.log10(rough)));
    var steps = [1, 2, 5, 10].map(function (f) { return f * power; });
    if (data.clock !== null) steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
    var step = steps.filter(function (s) { return s >= rough; })[0] || Math.ceil(rough / 86400) * 86400;
    var zero = data.clock === null ? 0 : data.clock / 1000 % step, ticks = line(parent, "", "ticks");
    for (var s = Math.ceil((data.from + zero) / step) * step - zero; s <= data.to + 1e-9; s += step)
      line(ticks, moment(data, s)).style.left = 100 * (s - data.from) / span + "%";
  }

  function draw(box) {
    box.textContent = "";
    var data = all[box.dataset.strip];
    var rows = data.pieces.length, high = rows <= 12 ? 20 : rows <= 30 ? 13 : 8;
    var grid = line(box, "", "grid");
    labels(grid, data, high);
    var svg = node("svg", {
      viewBox: "0 0 " + data.pieces[0].length + " " + rows, preserveAspectRatio: "none", tabindex: 0,
      role: "img", "aria-label": "Heat strip of " + rows + " sessions from " + span(data, data.from, data.to) +
        "; arrow keys read it out", style: "height:" + rows * high + "px"
    });
    data.parts.forEach(function (part, p) {
      var path = part.colour && outline(data, p);
      if (path) svg.appendChild(node("path", { d: path, style: "fill:var(--" + part.colour + ")", "data-part": part.name }));
    });
    (data.marks || []).forEach(function (mark) {
      var x = (mark[0] - data.from) / (data.to - data.from) * data.pieces[0].length;
      var line = node("line", { x1: x, x2: x, y1: 0, y2: rows, "vector-effect": "non-scaling-stroke", "data-mark": mark[1],
        style: "stroke:var(--text);stroke-width:2;stroke-dasharray:2 2" });
      line.appendChild(node("title", {})).textContent = mark[1];
      svg.appendChild(line);
    });
    grid.appendChild(svg);
    axis(grid, data);
    hover(svg, data);
    if (data.left_out) line(box, data.left_out + " less active sessions are left out; the export holds them.", "foot");
  }

  // Draws those that are to be seen now, each once.
  return function () {
    hide();
    document.querySelectorAll(".strip").forEach(function (box) {
      if (!box.firstChild && !box.closest("[hidden]")) draw(box);
    });
  };
})();
