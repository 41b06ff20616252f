// Curves of runs: throughput by load, from zero. They are asked for when their cells come in sight.
(function () {
  "use strict";
  var AT_A_TIME = 50, WIDE = 76, HIGH = 24, EDGE = 2;
  var served = document.documentElement.hasAttribute("data-served"), known = new Map();

  function svg(name, attributes) {
    var made = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.keys(attributes).forEach(function (k) { made.setAttribute(k, attributes[k]); });
    return made;
  }

  var inSight = new IntersectionObserver(function (entries) {
    entries.forEach(function (entry) {
      if (!entry.isIntersecting) return;
      inSight.unobserve(entry.target);
      want(entry.target);
    });
  }, { rootMargin: "200px" });
  var wanted = [], waiting = 0;

  function want(td) {
    wanted.push(td);
    if (!waiting) waiting = setTimeout(askForSome, 50);
  }

  function askForSome() {
    var some = wanted.splice(0, AT_A_TIME);
    waiting = wanted.length ? setTimeout(askForSome, 50) : 0;
    window.dbdynoAsk("/curves?" + some.map(function (td) {
      return "run=" + encodeURIComponent(td.dataset.curve);
    }).join("&")).then(function (answer) {
      Object.keys(answer).forEach(function (id) { known.set(id, answer[id]); });
      some.forEach(function (td) { draw(td, known.get(td.dataset.curve)); });
    }, function () {});  // rows without their curves; the list reports a server that does not answer
  }

  function draw(td, curve) {
    if (!curve) return;
    var lines = curve[0], points = [].concat.apply([], lines);
    var right = Math.max.apply(null, points.map(function (p) { return p[0]; }));
    var left = Math.min.apply(null, points.map(function (p) { return p[0]; }));
    var top = Math.max.apply(null, points.map(function (p) { return p[1]; }));
    function place(p) {
      var x = EDGE + (WIDE - 2 * EDGE) * (right > left ? (p[0] - left) / (right - left) : 0.5);
      var y = HIGH - EDGE - (HIGH - 2 * EDGE) * (top > 0 ? p[1] / top : 0);
      return x.toFixed(1) + "," + y.toFixed(1);
    }
    var picture = svg("svg", { viewBox: "0 0 " + WIDE + " " + HIGH, width: WIDE, height: HIGH, role: "img" });
    var title = svg("title", {});
    title.textContent = curve[1];
    picture.append(title);
    lines.forEach(function (line, n) {
      picture.append(svg("polyline", { points: line.map(place).join(" "), "class": "line-" + n }));
    });
    td.replaceChildren(picture);
  }

  window.dbdynoCurves = {
    // Takes the curves that a saved page has.
    take: function (curves) { Object.keys(curves).forEach(function (id) { known.set(id, curves[id]); }); },
    forget: function (id) { known.delete(id); },
    // Draws the curve of a run into a cell: now, or when the cell comes in sight.
    show: function (td, id) {
      td.dataset.curve = id;
      if (known.has(id)) draw(td, known.get(id));
      else if (served) inSight.observe(td);
    }
  };
})();
