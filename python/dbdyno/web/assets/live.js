// A run in progress: draws what the page has, then what the server sends.
(function () {
  "use strict";
  var root = document.documentElement, data = JSON.parse(document.getElementById("live").textContent);
  var place = document.getElementById("live-chart"), headline = document.getElementById("live-headline");
  var state = document.getElementById("live-state"), notes = document.getElementById("live-notes");
  var pause = document.getElementById("live-pause"), stop = document.getElementById("stop"), span = document.getElementById("live-span");
  var MOST_NOTES = 20, MOST_TIMES = 5000, AGAIN_MS = 5000;
  var WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];

  function css(name) { return getComputedStyle(root).getPropertyValue("--" + name).trim() || "gray"; }

  // -- an observation: the stack over time ------------------------------------------------------------

  function utc(seconds) { return new Date(Math.round(seconds) * 1000).toISOString().slice(0, 19) + "Z"; }

  // A selected span can be opened in time travel, which shows everything of it.
  function chosen(from, to) {
    span.hidden = from === null || !data.time;
    if (!span.hidden) span.querySelector("a").href = data.time + "?" + new URLSearchParams({ from: utc(from), to: utc(to) });
  }

  function stack(place, data, lastS) {
    var chart = data;
    // Of a window, 0 is a figure: only a gap has none.
    function values(chart, key) {
      var found = chart.series.find(function (s) { return s.key === key; });
      if (found) return found.values;
      var any = chart.series[0];
      return chart.times.map(function (_, n) { return any ? any.values[n] === null ? null : 0 : null; });
    }
    place.hidden = !chart.times.length;
    var drawn = window.labTimeline(place, chart, {
      unit: "active sessions", label: "Active sessions by account over time",
      height: innerWidth > 520 ? 320 : 240, onSelect: chosen
    });
    return function (next, segments) {
      var times = chart.times.slice(), last = times.length - 1, gap = last >= 0 && next.start_s - times[last] > 1;
      if (last >= 0 && next.start_s < times[last] - 0.5) return;  // it is there already
      var series = segments.map(function (segment) {
        var had = values(chart, segment.key).slice();
        if (last >= 0 && !gap) had.pop();
        had.push(next.values[segment.key] || 0, null);
        return { key: segment.key, name: segment.name, colour: segment.colour, values: had };
      });
      if (last >= 0 && !gap) times.pop();
      times.push(next.start_s, next.end_s);
      var first = lastS ? times.findIndex(function (t) { return t >= next.end_s - lastS; }) : 0;
      series.forEach(function (s) { s.values = s.values.slice(first); });
      if (times.length - first > MOST_TIMES) { location.reload(); return; }  // the server draws fewer
      chart = { times: times.slice(first), series: series, lines: chart.lines };
      drawn.set(chart);
    };
  }

  // -- a run: throughput by load ----------------------------------------------------------------------

  function ladder(place, data) {
    var plot = document.createElement("div"), legend = document.createElement("ul"), u = null;
    legend.className = "legend";
    place.append(plot, legend);

    function axis(label, size) {
      return {
        stroke: function () { return css("muted"); }, label: label, labelSize: 20, size: size,
        font: "12px " + getComputedStyle(document.body).fontFamily,
        labelFont: "12px " + getComputedStyle(document.body).fontFamily,
        grid: { stroke: function () { return css("line"); }, width: 1 }, ticks: { show: false }
      };
    }

    function key(series) {
      var item = document.createElement("li"), mark = document.createElement("i");
      mark.className = "line";
      mark.style.borderColor = "var(--" + series.colour + ")";
      item.append(mark, series.name);
      return item;
    }

    function show(data) {
      var all = data.series.filter(function (s) { return s.points.length; });
      if (u) u.destroy();
      u = null;
      place.hidden = !all.length || !window.uPlot;
      if (place.hidden) return;
      var xs = [], top = 0;
      all.forEach(function (s) { s.points.forEach(function (p) { if (xs.indexOf(p[0]) < 0) xs.push(p[0]); top = Math.max(top, p[1]); }); });
      xs.sort(function (a, b) { return a - b; });
      var lines = all.map(function (s) {
        return xs.map(function (x) { var p = s.points.find(function (p) { return p[0] === x; }); return p ? p[1] : null; });
      });
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", data.y + " by " + data.x + "; the table below has the figures");
      u = new uPlot({
        width: Math.max(120, plot.clientWidth), height: innerWidth > 520 ? 280 : 220, legend: { show: false },
        cursor: { drag: { x: false, y: false } },
        scales: { x: { time: false, range: [0, Math.max(data.most, xs[xs.length - 1]) * 1.05] }, y: { range: [0, top * 1.1] } },
        axes: [Object.assign(axis(data.x, 34), data.whole ? { incrs: WHOLE } : {}), axis(data.y, 64)],
        series: [{}].concat(all.map(function (s) {
          var colour = function () { return css(s.colour); };
          return { stroke: colour, width: 2, spanGaps: true, points: { show: true, size: 9, fill: colour } };
        }))
      }, [xs].concat(lines), plot);
      legend.replaceChildren.apply(legend, all.length > 1 ? all.map(key) : []);
    }

    new ResizeObserver(function () {
      if (u && plot.clientWidth && Math.abs(u.width - plot.clientWidth) > 1) u.setSize({ width: plot.clientWidth, height: u.height });
    }).observe(place);
    new MutationObserver(function () { if (u) u.redraw(); }).observe(root, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { if (u) u.redraw(); });
    show(data);
    return show;
  }

  // -- what the server sends --------------------------------------------------------------------------

  var draw = data.kind === "observation" ? stack(place, data.chart, data.last_s) : ladder(place, data.chart);
  if (!root.hasAttribute("data-served") || !data.events) return;

  var source = null, paused = "", measured = false, ended = false, last = data.events.split("after=")[1];
  var latest = headline.textContent, stopping = data.stopping;
  // Screen readers are told what begins and ends, not each headline: that changes every second or two.
  var status = document.getElementById("live-status");

  function lead() {
    var text = (!measured && stopping) || paused || latest;
    if (!ended && headline.textContent !== text) headline.textContent = text;
  }

  function tell(text) {
    status.textContent = text;
    lead();
  }

  function say(text) {
    state.hidden = !text;
    state.textContent = text;
  }

  function note(text) {
    var line = document.createElement("li");
    line.textContent = text;
    notes.append(line);
    while (notes.children.length > MOST_NOTES) notes.firstChild.remove();
    notes.hidden = false;
  }

  function show(news) {
    if (news.headline) latest = news.headline;
    lead();
    if (stopping && news.shown && news.shown.figures) {  // it ends sooner than the plan does
      news.shown.figures = news.shown.figures.filter(function (figure) { return figure[0] !== "Time left"; });
    }
    if (news.window) draw(news.window, news.segments);
    if (news.chart) draw(news.chart);
    if (news.shown && !window.labBlocks(news.shown)) location.reload();
  }

  function stopped(event) {
    stopping = event.detail;
    tell("");  // the note beside the button has said it
  }

  // All is measured: nothing is left to stop.
  function over(news) {
    measured = true;
    latest = news.headline;
    if (stop && stop.contains(document.activeElement)) pause.focus();
    if (stop) stop.hidden = true;
    tell(latest);
  }

  function end(news) {
    var focused = [pause, stop].some(function (e) { return e && e.contains(document.activeElement); });
    ended = true;
    source.close();
    pause.hidden = true;
    if (stop) stop.hidden = true;
    headline.textContent = status.textContent = "It has ended: " + news.status + ". ";
    var link = document.createElement("a");
    link.href = news.run;
    link.textContent = "Open the run";
    headline.append(link);
    if (focused) link.focus();
  }

  // A server that was started again does not know this browser. EventSource does not say why it gave up.
  function lost() {
    if (source.readyState !== EventSource.CLOSED) { say("The server does not answer; trying again."); return; }
    fetch(location.href, { cache: "no-store" }).then(function (answer) {
      if (answer.status === 401) say("The server was started again: open the address that it printed.");
      else if (answer.status === 404) say("This run is no longer in the store.");
      else setTimeout(connect, AGAIN_MS);
    }, function () {
      say("The server does not answer; trying again.");
      setTimeout(connect, AGAIN_MS);
    });
  }

  function on(kind, act) {
    source.addEventListener(kind, function (event) {
      if (event.lastEventId) last = event.lastEventId;
      act(JSON.parse(event.data));
    });
  }

  function connect() {
    if (paused || ended) return;
    source = new EventSource(data.events.split("?")[0] + "?after=" + encodeURIComponent(last));
    source.onopen = function () { say(""); };
    source.onerror = lost;
    ["window", "ladder", "now"].forEach(function (kind) { on(kind, show); });
    on("note", function (news) { note(news.text); });
    on("measured", over);
    on("end", end);
    on("reload", function () { location.reload(); });
  }

  pause.hidden = false;
  pause.addEventListener("click", function () {
    paused = paused ? "" : "Paused at " + new Date().toTimeString().slice(0, 8) + ". The measurement goes on.";
    pause.textContent = paused ? "Go on" : "Pause";
    tell(paused || "It goes on.");
    if (paused) source.close(); else connect();  // what was missed comes then
  });
  if (stop) stop.addEventListener("stopping", stopped);
  addEventListener("pagehide", function () { if (source) source.close(); });
  addEventListener("pageshow", function (event) { if (event.persisted) location.reload(); });
  connect();
})();
