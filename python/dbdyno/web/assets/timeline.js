// Stacked areas over time, of which a span can be selected: by dragging, or by keys.
//
// labTimeline(place, data, options) draws into the element `place` and returns {set(data), select(from, to),
// against(from, to), choose(on), zoom(from, to), position(), goOn(position), redraw()}. All times are in seconds since 1970; null for both ends: no span, or
// the whole time. `against` marks a second span, that with which the selected one is compared: it is A, the selected B.
// After choose(true) gestures select A, until one dragged it or Escape.
//
// data: times; series: [{name, colour, values}]; lines: [{name, colour, value}]; marks (optional): [{at, name}];
// zone (optional): {offset_s, name}, else that of the browser. A value holds from its time to the next one; null is a
// gap. So a last time without values ends the last window; without it, that is as long as the one before.
// Colours are names of the page's custom properties; "hatch-NAME" is striped with that of CPU WAIT.
//
// options (all optional): onSelect(from, to, isA), without which spans stay as they are; onChoosing(on); unit (title of the axis), label (for screen readers), height (pixels).
(function () {
  "use strict";
  var NEAR = 6, STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
    172800, 604800];
  var MISSING = "This chart needs uPlot, which is bundled when dbdyno is built and npm is there. In the source: " +
    "python tools/bundle_charts.py, then install again.";
  var MOVE = "eft and right move an end of ", MORE = ", with Shift farther, Home and End to the end of all; Space switches to " +
    "the other end; Escape ";
  var KEYS = "L" + MOVE + "the span" + MORE + "clears it.", KEYS_OF_A = "Drag over A, or l" + MOVE + "it" + MORE + "goes back to B.";

  function element(name, className, text) {
    var made = document.createElement(name);
    if (className) made.className = className;
    if (text) made.textContent = text;
    return made;
  }

  function css(name) { return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim() || "gray"; }

  function none() {}

  function two(n) { return (n < 10 ? "0" : "") + n; }

  function places(value) {
    return value === 0 ? "0" : Math.abs(value) < 10 ? value.toFixed(2) : Math.abs(value) < 100 ? value.toFixed(1) :
      Math.round(value).toLocaleString("en");
  }

  // A colour, or stripes as page.css has them for charts of bars.
  function fill(context, name, ratio) {
    if (name.indexOf("hatch-") !== 0) return css(name);
    var tile = document.createElement("canvas"), size = Math.max(4, Math.round(6 * ratio));
    tile.width = tile.height = size;
    var on = tile.getContext("2d");
    on.fillStyle = css("runq");
    on.fillRect(0, 0, size, size);
    on.fillStyle = css(name.slice(6));
    on.fillRect(0, 0, Math.round(size * 0.6), size);
    var pattern = context.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().rotate(45));
    return pattern;
  }

  function swatch(name, kind) {
    var mark = element("i", kind), own = "var(--" + name.replace("hatch-", "") + ")";
    if (kind) mark.style.borderColor = own;
    else mark.style.background = name.indexOf("hatch-") ? own :
      "repeating-linear-gradient(135deg,var(--runq) 0 2px," + own + " 2px 5px)";
    return mark;
  }

  window.labTimeline = function (place, data, options) {
    options = options || {};
    var box = element("div", "timeline"), plot = element("div", "plot"), at = element("p", "at muted"), keyHelp = element("span"), figures = element("span");
    var legend = element("ul", "legend"), picked = element("div", "picked"), other = element("div", "picked other"), state = element("span", "state");
    other.dataset.side = "A";
    var fixed = !options.onSelect;
    var ends = null, beside = null;  // the selected span, and the one it is compared with, seconds
    var choosing = false;  // gestures select beside, not ends
    var view = null;  // the drawn time, seconds; null: all of it
    var edge = 1, dragged = null, u = null, stack = null, keys = [];
    if (!fixed) plot.tabIndex = 0;
    plot.setAttribute("role", fixed ? "img" : "application");
    plot.setAttribute("aria-label", (options.label || "Chart over time") + (fixed ? "" : ". " + KEYS));
    state.setAttribute("role", "status");
    at.append(keyHelp, figures);
    box.append(plot, at, legend, state);
    place.replaceChildren(box);
    if (!window.uPlot) {
      plot.textContent = MISSING;
      return { set: none, select: none, against: none, choose: none, zoom: none, position: none, goOn: none, redraw: none };
    }

    // -- time ---------------------------------------------------------------------------------------

    function local(seconds) {
      var offset = data.zone ? data.zone.offset_s : -60 * new Date(seconds * 1000).getTimezoneOffset();
      return new Date((seconds + offset) * 1000);
    }

    // To the nearest second, as everywhere: addresses and texts of the server have the same one.
    function clock(seconds, withSeconds, withDay) {
      var d = local(Math.round(seconds));
      var day = d.getUTCFullYear() + "-" + two(d.getUTCMonth() + 1) + "-" + two(d.getUTCDate());
      var time = two(d.getUTCHours()) + ":" + two(d.getUTCMinutes());
      return (withDay ? day + " " : "") + time + (withSeconds ? ":" + two(d.getUTCSeconds()) : "");
    }

    function splits(_, __, from, to) {
      var most = Math.max(2, Math.floor(u ? u.bbox.width / devicePixelRatio / 70 : 6));
      var step = STEPS.find(function (s) { return (to - from) / s <= most; }) || STEPS[STEPS.length - 1] *
        Math.ceil((to - from) / most / STEPS[STEPS.length - 1]);
      var offset = (local(from) - from * 1000) / 1000, marks = [];
      for (var t = Math.ceil((from + offset) / step) * step - offset; t <= to; t += step) marks.push(t);
      return marks;
    }

    function labels(_, marks) {
      var fine = marks.length > 1 && marks[1] - marks[0] < 60, before = "";
      return marks.map(function (t, n) {
        var day = clock(t, false, true).slice(5, 10), shown = clock(t, fine, false);
        var changed = n && day !== before;
        before = day;
        return changed || (n === 0 && to() - from() > 86400) ? shown + "\n" + day : shown;
      });
    }

    // -- figures ------------------------------------------------------------------------------------

    // Piles up the series. A negative remainder hangs below zero; a window in which nothing is known is a gap.
    function piled() {
      var n = data.times.length, top = [], bottom = [], sum = new Float64Array(n), low = new Float64Array(n);
      var gap = new Uint8Array(n).fill(1);
      data.series.forEach(function (series) {
        var high = new Float64Array(n), base = new Float64Array(n);
        for (var i = 0; i < n; i++) {
          var value = series.values[i];
          if (value !== null && value !== undefined) gap[i] = 0;
          if (value < 0) { high[i] = low[i]; low[i] += value; base[i] = low[i]; }
          else { base[i] = sum[i]; sum[i] += value || 0; high[i] = sum[i]; }
        }
        top.push(high);
        bottom.push(base);
      });
      return { times: data.times, top: top, bottom: bottom, sum: sum, low: low, gap: gap };
    }

    function count() { return data.times.length; }

    function end(i) {
      var t = data.times, n = t.length;
      return i + 1 < n ? t[i + 1] : t[n - 1] + (n > 1 && !stack.gap[n - 1] ? t[n - 1] - t[n - 2] : 0);
    }

    function from() { return view ? view[0] : count() ? data.times[0] : 0; }

    function to() { return view ? view[1] : count() ? Math.max(end(count() - 1), data.times[0] + 1) : 1; }

    // The last window that begins at or before a moment.
    function index(seconds) {
      var low = 0, high = count() - 1;
      while (low < high) {
        var middle = (low + high + 1) >> 1;
        if (data.times[middle] <= seconds) low = middle; else high = middle - 1;
      }
      return low;
    }

    function heights() {
      var first = index(from()), last = count() ? index(to()) : -1, high = 0, low = 0;
      for (var i = first; i <= last; i++) {
        if (!stack.gap[i] && stack.sum[i] > high) high = stack.sum[i];
        if (stack.low[i] < low) low = stack.low[i];
      }
      (data.lines || []).forEach(function (line) { if (line.value <= 1.3 * high && line.value > high) high = line.value; });
      return [1.02 * low, high > 0 ? 1.05 * high : 1];
    }

    // -- drawing ------------------------------------------------------------------------------------

    // Windows by pixel: [begin, end, first window, last window]; where several share a pixel, it has their mean.
    function columns() {
      var found = [], open = null, last = count() ? index(to()) : -1, begin = from(), until = to();
      var scale = u.bbox.width / (until - begin);
      for (var i = index(from()); i <= last; i++) {
        if (stack.gap[i]) { open = null; continue; }
        var x0 = Math.round(u.bbox.left + scale * (Math.max(data.times[i], begin) - begin));
        var x1 = Math.round(u.bbox.left + scale * (Math.min(end(i), until) - begin));
        if (open && (x0 === open[0] || x1 === open[1])) { open[3] = i; open[1] = Math.max(open[1], x1); }
        else { open = [x0, Math.max(x1, x0 + 1), i, i]; found.push(open); }
      }
      return found;
    }

    function mean(values, column) {
      var sum = 0;
      for (var i = column[2]; i <= column[3]; i++) sum += values[i];
      return sum / (column[3] - column[2] + 1);
    }

    function paint() {
      var on = u.ctx, all = columns(), zero = u.valToPos(0, "y", true), one = zero - u.valToPos(1, "y", true);
      on.save();
      on.beginPath();
      on.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
      on.clip();
      data.series.forEach(function (series, k) {
        on.fillStyle = fill(on, series.colour, devicePixelRatio);
        on.beginPath();
        for (var n = 0; n < all.length;) n = area(on, all, n, stack.top[k], stack.bottom[k], zero, one);
        on.fill();
      });
      (data.lines || []).forEach(function (line) { rule(on, line.colour, [6, 4], "y", line.value); });
      (data.marks || []).forEach(function (mark) { rule(on, "text", [2, 2], "x", mark.at); });
      on.restore();
    }

    // Adds the outline of adjacent columns; returns the first column behind the next gap.
    function area(on, all, first, top, bottom, zero, one) {
      var last = first;
      while (last + 1 < all.length && all[last + 1][0] <= all[last][1]) last++;
      on.moveTo(all[first][0], zero - one * mean(bottom, all[first]));
      for (var n = first; n <= last; n++) {
        var y = zero - one * mean(top, all[n]);
        on.lineTo(all[n][0], y);
        on.lineTo(all[n][1], y);
      }
      for (n = last; n >= first; n--) {
        y = zero - one * mean(bottom, all[n]);
        on.lineTo(all[n][1], y);
        on.lineTo(all[n][0], y);
      }
      return last + 1;
    }

    function rule(on, colour, dash, axis, value) {
      var where = Math.round(u.valToPos(value, axis, true)), b = u.bbox;
      on.strokeStyle = css(colour);
      on.lineWidth = 1.5 * devicePixelRatio;
      on.setLineDash(dash.map(function (d) { return d * devicePixelRatio; }));
      on.beginPath();
      if (axis === "y") { on.moveTo(b.left, where); on.lineTo(b.left + b.width, where); }
      else { on.moveTo(where, b.top); on.lineTo(where, b.top + b.height); }
      on.stroke();
      on.setLineDash([]);
    }

    function show() {
      if (!u) return;
      mark(picked, ends);
      mark(other, beside);
      picked.dataset.side = beside ? "B" : "";
      picked.dataset.edge = other.dataset.edge = "";
      (choosing ? other : picked).dataset.edge = edge ? "to" : "from";
    }

    function mark(span, pair) {
      span.hidden = !pair || pair[1] <= from() || pair[0] >= to();
      if (span.hidden) return;
      var x0 = u.valToPos(Math.max(pair[0], from()), "x"), x1 = u.valToPos(Math.min(pair[1], to()), "x");
      span.style.left = x0 + "px";
      span.style.width = Math.max(1, x1 - x0) + "px";
    }

    function redraw() {
      if (!u) return;
      u.setData([stack.times, stack.sum], false);
      u.setScale("x", { min: from(), max: to() });
      u.redraw(false, true);
    }

    function named() {
      keys = data.series.map(function (series) { return entry(series, ""); });
      (data.lines || []).forEach(function (line) {
        entry(line, "dash").textContent = places(line.value);
      });
    }

    function entry(what, kind) {
      var item = element("li"), value = element("b");
      item.append(swatch(what.colour, kind), element("span", "", what.name), value);
      legend.append(item);
      return value;
    }

    function help() { keyHelp.textContent = fixed ? "" : choosing ? KEYS_OF_A : KEYS; }

    // The figures under the pointer stand in the legend, the window's time above it.
    function readout() {
      var x = u.cursor.left, i = x >= 0 && count() ? index(u.posToVal(x, "x")) : -1;
      var known = i >= 0 && !stack.gap[i];
      data.series.forEach(function (series, k) {
        keys[k].textContent = known && typeof series.values[i] === "number" ? places(series.values[i]) : "";
      });
      keyHelp.style.visibility = i < 0 ? "" : "hidden";  // it keeps its room, so that nothing below moves
      figures.textContent = i < 0 ? "" : clock(data.times[i], true, true) + " to " + clock(end(i), true, false) +
        (known ? ": " + places(stack.sum[i]) + (options.unit ? " " + options.unit : "") : ": nothing was measured") +
        (data.marks || []).filter(function (mark) {
          return Math.abs(u.valToPos(mark.at, "x") - x) < NEAR;
        }).map(function (mark) { return "; " + mark.name; }).join("");
    }

    // -- selecting ----------------------------------------------------------------------------------

    function ordered(a, b) { return a === null || a === undefined ? null : [Math.min(a, b), Math.max(a, b)]; }

    function put(a, b) {
      if (choosing) beside = ordered(a, b); else ends = ordered(a, b);
      show();
    }

    function words(pair) { return clock(pair[0], true, true) + " to " + clock(pair[1], true, false); }

    function describe() {
      state.textContent = (ends ? "Selected: " + words(ends) : "No span selected") + (beside ? "; A: " + words(beside) : "");
      show();
    }

    function report(isA) {
      var pair = isA ? beside : ends;
      describe();
      options.onSelect(pair ? pair[0] : null, pair ? pair[1] : null, isA);
    }

    function choose(on) {
      choosing = on;
      edge = 1;
      help();
      show();
      if (options.onChoosing) options.onChoosing(on);
      if (on) plot.focus({ preventScroll: true });
    }

    function moment(event) {
      var x = event.clientX - u.over.getBoundingClientRect().left;
      return u.posToVal(Math.max(0, Math.min(u.over.clientWidth, x)), "x");
    }

    function near(event, seconds) {
      return Math.abs(u.valToPos(seconds, "x") - (event.clientX - u.over.getBoundingClientRect().left)) <= NEAR;
    }

    function pressed(event) {
      if (event.button || !count()) return;
      var now = moment(event), n = ends && !choosing ? [near(event, ends[0]), near(event, ends[1])].indexOf(true) : -1;
      dragged = { anchor: n < 0 ? now : ends[1 - n], x: event.clientX, moved: n >= 0, before: choosing ? beside : ends };
      u.over.setPointerCapture(event.pointerId);
    }

    function moved(event) {
      if (!dragged) return;
      if (Math.abs(event.clientX - dragged.x) > 3) dragged.moved = true;
      if (!dragged.moved) return;
      var now = moment(event);
      edge = now >= dragged.anchor ? 1 : 0;
      put(dragged.anchor, now);
    }

    // Without a movement, the window under the pointer is selected. Ends snap to whole windows.
    function released(event) {
      if (!dragged) return;
      var now = dragged.moved ? moment(event) : dragged.anchor;
      var first = index(Math.min(dragged.anchor, now)), last = index(Math.max(dragged.anchor, now));
      if (last > first && data.times[last] === Math.max(dragged.anchor, now)) last--;
      var isA = choosing;
      dragged = null;
      put(data.times[first], end(last));
      if (isA) choose(false);
      report(isA);
    }

    // Where keys begin: A before B and as long, or behind it where there is no room; any other in the middle.
    function start(last) {
      if (!choosing || !ends) { var middle = index((from() + to()) / 2); return [middle, middle]; }
      var first = index(ends[0]), until = index(ends[1] - 0.01), length = until - first + 1;
      return first > 0 || until >= last ? [Math.max(0, first - length), Math.max(0, first - 1)] :
        [until + 1, Math.min(last, until + length)];
    }

    function key(event) {
      if (event.key === "Escape" && choosing) { choose(false); event.preventDefault(); return; }
      if (event.key === "Escape" && ends) { put(null); report(false); event.preventDefault(); return; }
      if (event.key === " ") { edge = 1 - edge; show(); event.preventDefault(); return; }
      var way = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (!way || event.ctrlKey || event.altKey || event.metaKey || !count()) return;
      event.preventDefault();
      var last = stack.gap[count() - 1] ? count() - 2 : count() - 1;
      var far = event.shiftKey ? Math.max(2, Math.round((index(to()) - index(from())) / 20)) : 1;
      var now = choosing ? beside : ends, pair = now ? [index(now[0]), index(now[1] - 0.01)] : start(last);
      if (!now || !isFinite(way)) edge = way > 0 ? 1 : 0;
      if (now || !isFinite(way)) pair[edge] = Math.max(0, Math.min(last, pair[edge] + way * far));
      if (pair[0] > pair[1]) pair[edge] = pair[1 - edge];
      put(data.times[pair[0]], end(pair[1]));
      follow((choosing ? beside : ends)[edge]);
      report(choosing);
    }

    // Moves the drawn time so far that a moment is in it.
    function follow(seconds) {
      if (!view) return;
      var shift = Math.min(0, seconds - view[0]) + Math.max(0, seconds - view[1]);
      if (shift) { view = [view[0] + shift, view[1] + shift]; redraw(); }
    }

    // -- putting it together ------------------------------------------------------------------------

    function muted() { return css("muted"); }

    function axis(more) {
      return Object.assign({
        stroke: muted, font: "12px " + getComputedStyle(document.body).fontFamily, labelFont: "12px " +
          getComputedStyle(document.body).fontFamily, ticks: { stroke: function () { return css("line"); }, size: 4 }
      }, more);
    }

    function make() {
      stack = piled();
      var line = function () { return css("line"); };
      new uPlot({
        width: Math.max(120, plot.clientWidth), height: options.height || 260, legend: { show: false },
        padding: [8, 24, 0, 0],
        cursor: { drag: { x: false, y: false, setScale: false }, y: false, points: { show: false } },
        select: { show: false },
        scales: { x: { time: false, range: function () { return [from(), to()]; } }, y: { range: heights } },
        series: [{}, { paths: function () { return null; }, points: { show: false } }],
        axes: [
          axis({ splits: splits, values: labels, grid: { show: false }, size: 44 }),
          axis({ grid: { stroke: line, width: 1 }, size: 48, label: options.unit, labelSize: options.unit ? 18 : 0 })
        ],
        hooks: { init: [function (self) { u = self; }], draw: [paint, show], setCursor: [readout] }
      }, [stack.times, stack.sum], plot);
      picked.hidden = other.hidden = true;
      u.over.append(other, picked);
      if (fixed) return;
      u.over.addEventListener("pointerdown", pressed);
      u.over.addEventListener("pointermove", moved);
      u.over.addEventListener("pointerup", released);
      u.over.addEventListener("pointercancel", function () { if (dragged) { ends = dragged.before; dragged = null; show(); } });
    }

    if (!fixed) plot.addEventListener("keydown", key);
    new ResizeObserver(function () {
      if (!plot.clientWidth) return;
      if (!u) { make(); return; }
      if (Math.abs(u.width - plot.clientWidth) > 1) u.setSize({ width: plot.clientWidth, height: u.height });
    }).observe(plot);
    new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    ["(prefers-color-scheme: dark)", "print"].forEach(function (query) {
      matchMedia(query).addEventListener("change", redraw);
    });
    named();
    help();
    if (plot.clientWidth) make(); else stack = piled();

    return {
      set: function (newer) {
        data = newer;
        legend.replaceChildren();
        named();
        stack = piled();
        redraw();
      },
      select: function (a, b) { ends = ordered(a, b); describe(); },
      against: function (a, b) { beside = ordered(a, b); describe(); },
      choose: choose,
      zoom: function (a, b) { view = a === null || a === undefined || b <= a ? null : [a, b]; redraw(); },
      position: function () { return { edge: edge, view: view, choosing: choosing, focus: document.activeElement === plot }; },
      goOn: function (position) {
        if (position.choosing) choose(true);
        edge = position.edge;
        view = position.view;
        if (position.focus) plot.focus({ preventScroll: true });
        redraw();
        show();
      },
      redraw: redraw
    };
  };
})();
