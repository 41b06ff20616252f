// Keeps tables within their page. A table that is too wide is set smaller; then its columns of the highest rank are left
// out, named below the table, and shown by a button. On a phone all columns stay: there a table scrolls sideways, and its
// box ends behind a whole column, so that no heading is cut and the shade at the edge shows that there is more.
(function () {
  "use strict";
  var PHONE = 520, fitted = new WeakMap(), whole = new WeakSet();

  function tooWide(box) { return box.scrollWidth > box.clientWidth + 1; }

  function show(table, column, shown) {
    Array.prototype.forEach.call(table.rows, function (row) {
      if (row.cells.length > column) row.cells[column].hidden = !shown;
    });
  }

  function leaveOut(box, table, heads) {
    var rank = Math.max.apply(null, heads.map(function (h) { return h.hidden ? 0 : Number(h.dataset.rank || 0); }));
    if (!rank) return false;
    heads.forEach(function (head, n) { if (Number(head.dataset.rank) === rank) show(table, n, false); });
    return true;
  }

  function note(box, table, heads) {
    var names = heads.filter(function (h) { return h.hidden; }).map(function (h) { return h.innerText.trim(); });
    if (!names.length) return;
    var line = document.createElement("p"), button = document.createElement("button");
    line.className = "foot fitted";
    line.textContent = "Not shown at this width: " + names.filter(Boolean).join(", ") + ". ";
    button.type = "button";
    button.textContent = "show all columns";
    button.addEventListener("click", function () { whole.add(box); fit(box); box.focus(); });
    line.appendChild(button);
    box.after(line);
  }

  function edge(box) {
    var room = box.clientWidth, frame = box.offsetWidth - room, end = 0;
    var left = box.getBoundingClientRect().left + box.clientLeft - box.scrollLeft;
    box.querySelectorAll("thead th").forEach(function (head) {
      var right = head.getBoundingClientRect().right - left;
      if (right <= room && right > end) end = right;
    });
    if (end <= room / 2) return;
    box.style.maxWidth = Math.ceil(end + frame) + "px";
    caption(box, Math.floor(end - 24) + "px");
  }

  // A title is as wide as what is seen of its table, not of the window.
  function caption(box, width) {
    var title = box.querySelector("caption span");
    if (title) title.style.maxWidth = width;
  }

  function fit(box) {
    var table = box.querySelector("table"), heads = Array.prototype.slice.call(table.querySelectorAll("thead th"));
    box.style.maxWidth = "";
    caption(box, "");
    table.classList.remove("dense");
    heads.forEach(function (head, n) { if (head.hidden) show(table, n, true); });
    if (box.nextElementSibling && box.nextElementSibling.classList.contains("fitted")) box.nextElementSibling.remove();
    if (!box.clientWidth || !tooWide(box)) return;
    if (innerWidth > PHONE) {
      table.classList.add("dense");
      while (!whole.has(box) && tooWide(box) && leaveOut(box, table, heads));
      note(box, table, heads);
    }
    if (tooWide(box)) edge(box);
  }

  function fitAll(parent) {
    parent.querySelectorAll(":scope > .scroll").forEach(function (box) {
      if (fitted.get(box) === parent.clientWidth) return;
      fitted.set(box, parent.clientWidth);
      fit(box);
    });
  }

  var watch = new ResizeObserver(function (seen) { seen.forEach(function (s) { fitAll(s.target); }); });
  // Fits the tables of a page, or of a part that is put into it later.
  window.dbdynoTables = function (part) {
    part.querySelectorAll(".scroll").forEach(function (box) { fitAll(box.parentElement); watch.observe(box.parentElement); });
  };
  window.dbdynoTables(document);
})();
