// The list of runs: filters and sorts it, and keeps it up to date. All texts are foreign: they become text nodes and
// never markup, and ids are keys of maps alone.
(function () {
  "use strict";
  var AT_A_TIME = 100, POLL_MS = 10000;
  var KEYS = ["words", "workload", "status", "tag", "sort"], NEWEST = "-started";
  var TEXTS = ["id", "name", "started", "workload", "server", "target", "sessions", "peak", "status", "reason",
    "note", "lasted", "group"];
  // What a column is sorted by; columns of numbers begin with the largest.
  var BY = {
    run: function (r) { return r.name || r.id; }, started: function (r) { return r.started_s; },
    workload: function (r) { return r.workload; }, server: function (r) { return r.server; },
    target: function (r) { return r.target; }, sessions: function (r) { return r.most_sessions; },
    peak: function (r) { return r.peak_calls_per_s; }, status: function (r) { return r.status; },
    tags: function (r) { return r.tags.join(", "); }, lasted: function (r) { return r.lasted_s; }
  };
  var LARGEST_FIRST = { started: 1, sessions: 1, peak: 1, lasted: 1 };
  var served = document.documentElement.hasAttribute("data-served");
  var given = JSON.parse(document.getElementById("run-list").textContent);
  var collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  var all = [], shown = [], byId = new Map(), groups = new Map(), drawn = new Map(), chosen = new Set();
  var most = AT_A_TIME, tag = given.tag, asked = {};

  function at(id) { return document.getElementById(id); }
  function node(name, text, kind) {
    var made = document.createElement(name);
    if (text) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }
  function number(n) { return n.toLocaleString("en-US"); }
  function runs(n) { return number(n) + (n === 1 ? " run" : " runs"); }

  // Rows.

  function take(listing) {
    var before = byId;
    byId = new Map();
    groups = new Map();
    all = listing.rows.map(function (values) {
      var row = {};
      listing.columns.forEach(function (name, n) { row[name] = values[n]; });
      row.text = TEXTS.map(function (k) { return row[k]; }).concat(row.tags).join("\n").toLowerCase();
      if (row.group) groups.set(row.group, (groups.get(row.group) || 0) + 1);
      byId.set(row.id, row);
      return row;
    });
    drawn.forEach(function (_, id) {
      var row = byId.get(id), old = before.get(id);
      if (row && old.text === row.text && (!row.group || old.together === groups.get(row.group))) return;
      if (!row || old.status !== row.status || old.peak !== row.peak) window.dbdynoCurves.forget(id);
      drawn.delete(id);
    });
    all.forEach(function (row) { row.together = groups.get(row.group); });
    chosen.forEach(function (id) { if (!byId.has(id)) chosen.delete(id); });
    tag = listing.tag;
    offer("workload", function (r) { return [r.workload]; });
    offer("status", function (r) { return [r.status]; });
    offer("tag", function (r) { return r.tags; });
  }

  // Fills a filter with the values that runs have; a wanted one stays, even if no run has it.
  function offer(key, values) {
    var select = at(key), texts = new Set(asked[key] ? [asked[key]] : []);
    all.forEach(function (r) { values(r).forEach(function (v) { if (v) texts.add(v); }); });
    select.replaceChildren(select.options[0]);
    Array.from(texts).sort(collator.compare).forEach(function (text) {
      var option = node("option", text);
      option.value = text;
      select.append(option);
    });
    select.value = asked[key];
  }

  function matching() {
    var words = asked.words.toLowerCase().split(/\s+/).filter(Boolean);
    return all.filter(function (r) {
      return (!asked.workload || r.workload === asked.workload) && (!asked.status || r.status === asked.status) &&
        (!asked.tag || r.tags.indexOf(asked.tag) >= 0) &&
        words.every(function (w) { return r.text.indexOf(w) >= 0; });
    });
  }

  // Rows without a value come last in both directions; equal ones stay in order of time, newest first.
  function sorted(rows) {
    var key = asked.sort.replace("-", ""), by = BY[key], turn = asked.sort[0] === "-" ? -1 : 1;
    return rows.map(function (r) { return [by(r), r]; }).sort(function (a, b) {
      var x = a[0], y = b[0], none = function (v) { return v === null || v === ""; };
      if (none(x) || none(y)) return none(x) - none(y);
      return turn * (typeof x === "number" ? x - y : collator.compare(x, y));
    }).map(function (pair) { return pair[1]; });
  }

  // Drawing.

  function show() {
    var active = document.activeElement, body = at("rows");
    shown = sorted(matching());
    at("none").hidden = all.length > 0;
    at("some").hidden = all.length === 0;
    at("no-match").hidden = shown.length > 0;
    body.replaceChildren.apply(body, shown.slice(0, most).map(rowOf));
    if (active && active !== document.activeElement && body.contains(active)) active.focus({ preventScroll: true });
    at("more").hidden = shown.length <= most;
    at("more").textContent = "Show more (" + number(Math.max(0, shown.length - most)) + " left)";
    at("rest").textContent = shown.length > most ? "Not on paper: " + number(shown.length - most) + " more." : "";
    at("count").textContent = shown.length === all.length ? runs(all.length)
      : number(shown.length) + " of " + runs(all.length);
    at("clear").hidden = !(asked.words || asked.workload || asked.status || asked.tag);
    document.querySelectorAll("th[data-column]").forEach(function (th) {
      var key = asked.sort.replace("-", "");
      if (th.dataset.column !== key) th.removeAttribute("aria-sort");
      else th.setAttribute("aria-sort", asked.sort[0] === "-" ? "descending" : "ascending");
    });
    showChosen();
    body.dataset.rows = body.children.length;
  }

  function rowOf(row) {
    var tr = drawn.get(row.id);
    if (tr) return tr;
    if (drawn.size > 3000) drawn.clear();
    tr = node("tr");
    tr.dataset.run = row.id;
    if (served) tr.append(choiceOf(row));
    tr.append(nameOf(row), startOf(row), cell("Workload", row.workload),
      cell("System", row.server), cell("Target", row.target), cell("Sessions", row.sessions, "num"),
      cell("Peak", row.peak, "num"), curveOf(row));
    var status = statusOf(row);
    if (row.reason && !row.tags.length && !row.lasted) status.colSpan = 3;  // a long sentence in empty room
    tr.append(status);
    if (status.colSpan === 1) tr.append(tagsOf(row), cell("Lasted", row.lasted, "num"));
    drawn.set(row.id, tr);
    return tr;
  }

  function cell(head, text, kind) {
    var td = node("td", text, kind);
    td.dataset.head = head;  // on a phone, where a row is a card
    return td;
  }

  function startOf(row) {  // the day and the time of day may stand in two lines
    var td = cell("Started", ""), parts = row.started.split(" ");
    td.append(node("span", parts[0]), " ", node("span", parts[1]));
    return td;
  }

  function choiceOf(row) {
    var td = node("td", "", "served"), box = node("input");
    box.type = "checkbox";
    box.checked = chosen.has(row.id);
    box.setAttribute("aria-label", "Choose " + (row.name || row.id));
    box.addEventListener("change", function () {
      if (box.checked) chosen.add(row.id); else chosen.delete(row.id);
      showChosen();
    });
    td.append(box);
    return td;
  }

  // A broken run, and one of a newer dbdyno, has no page: its status says why.
  function nameOf(row) {
    var th = node("th"), broken = row.status === "broken", link = node(served && !broken ? "a" : "span");
    th.scope = "row";
    link.textContent = row.name || row.id;
    if (served && !broken) {
      link.href = (row.status === "running" ? "/live/" : "/run/") + encodeURIComponent(row.id);
    }
    th.append(link);
    if (row.name) th.append(node("small", row.id));
    if (row.note) th.append(node("small", row.note, "note"));
    if (row.group) {
      var others = row.together - 1;
      var together = node("button", "observed with " + (others === 1 ? "another" : number(others) + " others"), "chip");
      together.type = "button";
      together.addEventListener("click", function () { ask({ words: row.group }); });
      th.append(together);
    }
    return th;
  }

  function curveOf(row) {
    var td = cell("By load", "", "curve");
    if (row.status !== "broken" && row.status !== "running") window.dbdynoCurves.show(td, row.id);
    return td;
  }

  function statusOf(row) {
    var td = cell("Status", ""), tone = { complete: "", running: "tone good" }[row.status];
    td.append(node("span", row.status, tone === undefined ? "tone warning" : tone));
    if (row.reason) td.append(node("small", row.reason));
    return td;
  }

  function tagsOf(row) {
    var td = cell("Tags", "");
    row.tags.forEach(function (text) {
      var button = node("button", text, "chip");
      button.type = "button";
      button.addEventListener("click", function () { ask({ tag: text }); });
      td.append(button);
    });
    return td;
  }

  // Filters and order are in the address.

  function ask(changes) {
    var words = "words" in changes;
    Object.keys(changes).forEach(function (k) { asked[k] = changes[k]; });
    KEYS.forEach(function (k) { if (at(k) && at(k).value !== asked[k]) at(k).value = asked[k]; });
    at("sort").value = asked.sort.replace("-", "");
    most = AT_A_TIME;
    show();
    if (served) later(words ? 200 : 0);
  }

  var writing = 0;
  function later(ms) {  // browsers refuse too many changes in a short time
    clearTimeout(writing);
    writing = setTimeout(writeAddress, ms);
  }

  function writeAddress() {
    var address = new URLSearchParams(), trend = new URLSearchParams();
    KEYS.forEach(function (k) {
      if (!asked[k] || asked[k] === NEWEST) return;
      address.set(k === "words" ? "q" : k, asked[k]);
      if (k !== "sort") trend.set(k === "words" ? "q" : k, asked[k]);
    });
    var text = address.toString(), keep = document.querySelector(".pages .keep");
    history.replaceState(null, "", text ? "?" + text : location.pathname);
    if (keep) keep.href = "?" + (text ? text + "&" : "") + "save=1";
    at("over-time").href = "/trend" + (trend.toString() ? "?" + trend : "");
  }

  function readAddress() {
    var address = served ? new URLSearchParams(location.search) : new URLSearchParams(given.asked || {});
    KEYS.forEach(function (k) { asked[k] = address.get(k === "words" ? "q" : k) || ""; });
    if (!BY[asked.sort.replace("-", "")]) asked.sort = NEWEST;
  }

  at("words").addEventListener("input", function () { ask({ words: at("words").value }); });
  ["workload", "status", "tag"].forEach(function (key) {
    at(key).addEventListener("change", function () {
      var change = {};
      change[key] = at(key).value;
      ask(change);
    });
  });
  document.querySelector(".filters").addEventListener("submit", function (event) { event.preventDefault(); });
  at("clear").addEventListener("click", function () {
    ask({ words: "", workload: "", status: "", tag: "" });
    at("words").focus();
  });
  function sortBy(key) {
    var first = (LARGEST_FIRST[key] ? "-" : "") + key, other = (LARGEST_FIRST[key] ? "" : "-") + key;
    ask({ sort: asked.sort === first ? other : first });
  }
  document.querySelectorAll("button[data-sort]").forEach(function (button) {
    button.addEventListener("click", function () { sortBy(button.dataset.sort); });
  });
  at("sort").addEventListener("change", function () { sortBy(at("sort").value); });

  at("reverse").addEventListener("click", function () {
    ask({ sort: asked.sort[0] === "-" ? asked.sort.slice(1) : "-" + asked.sort });
  });

  function showMore() { most += AT_A_TIME; show(); }
  at("more").addEventListener("click", showMore);
  new IntersectionObserver(function (entries) {
    if (entries[0].isIntersecting && !at("more").hidden) showMore();
  }, { rootMargin: "300px" }).observe(at("more"));

  // What is chosen, and what comes from the server.

  function chosenRows() { return Array.from(chosen, function (id) { return byId.get(id); }); }

  function showChosen() {
    var rows = chosenRows();
    var comparable = rows.filter(function (r) { return r.status === "complete" || r.status === "cut short"; })
      .sort(function (a, b) { return a.started_s - b.started_s; });  // the baseline comes first in the address
    var one = rows.length === 1, oldest = comparable.length > 1 ? ", the oldest is the baseline" : "";
    at("chosen").textContent = rows.length ? number(rows.length) + " chosen" + oldest + ":" : "";
    at("compare").hidden = comparable.length < 2 && !(comparable.length && comparable[0].variants > 1);
    at("compare").textContent = comparable.length > 1 ? "Compare " + runs(comparable.length) : "Compare its variants";
    at("compare").href = "/compare?" + comparable.map(function (r) {
      return "run=" + encodeURIComponent(r.id);
    }).join("&");
    at("label").hidden = !(one && comparable.length === 1);
    at("remove").hidden = !rows.some(removable);
    at("unchoose").hidden = !rows.length;
  }

  function removable(row) { return row.status !== "running"; }

  function notice(text, done) {
    at("notice").textContent = text;
    at("notice").className = done ? "muted" : "warning";
    at("notice").hidden = !text;
  }

  var unanswered = "";
  function reload() {
    return window.dbdynoAsk("/runs.json", null, { "If-None-Match": '"' + tag + '"' }).then(function (listing) {
      if (unanswered && at("notice").textContent === unanswered) notice("");
      unanswered = "";
      if (listing) { take(listing); show(); }
    }, function (error) {
      unanswered = error.message;
      notice(error.message);
    });
  }

  function watch() {
    at("unchoose").addEventListener("click", function () {
      chosen.clear();
      document.querySelectorAll("#rows input").forEach(function (box) { box.checked = false; });
      drawn.forEach(function (tr) { tr.querySelector("input").checked = false; });
      showChosen();
    });
    setInterval(function () { if (!document.hidden) reload(); }, POLL_MS);
    document.addEventListener("visibilitychange", function () { if (!document.hidden) reload(); });
    addEventListener("pageshow", function (event) { if (event.persisted) reload(); });
  }

  window.dbdynoRuns = {
    chosen: chosenRows, removable: removable, reload: reload, notice: notice, node: node, runs: runs
  };
  readAddress();
  window.dbdynoCurves.take(given.curves || {});
  take(given);
  at("words").value = asked.words;
  ask({});
  if (served) watch();
  else document.querySelectorAll(".served").forEach(function (part) { part.hidden = true; });
})();
