// Replaces figures and sections of a page by newer ones from the server: window.labBlocks(document as it is stored).
// Everything becomes text. A section that is the same stays as it is; in a new one, the focus and opened texts are kept.
(function () {
  "use strict";
  var known = {};

  function element(name, className, text) {
    var made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined && text !== null) made.textContent = text;
    return made;
  }

  // A cell is [text, value, unit, note, tone, bar, whole], without what is not set at its end.
  function content(into, cell) {
    var text = cell[0], note = cell[3], tone = cell[4], bar = cell[5], whole = cell[6];
    if (whole) {
      var details = element("details");
      details.append(element("summary", "", text), element("pre", "", whole));
      into.append(details);
    } else {
      var span = element("span", (text === "?" ? "unknown " : "") + (tone ? "tone " + tone : ""), text);
      if (note || text === "?") span.title = note || "unknown";
      into.append(span);
    }
    if (!bar || !bar.length) return;
    var drawn = element("span", "bar");
    drawn.setAttribute("aria-hidden", "true");
    bar.forEach(function (part) {
      var piece = element("i");
      piece.style.width = (100 * part[0]).toFixed(1) + "%";
      piece.style.background = "var(--" + part[1] + ")";
      drawn.append(piece);
    });
    into.append(drawn);
  }

  // A column is [head, number, rank, wraps, sketch, shortens, width, name, note].
  function table(block) {
    var box = element("div", "scroll"), made = element("table", block.named ? "named" : ""), head = element("thead");
    var line = element("tr"), body = element("tbody");
    var classes = block.columns.map(function (c) { return c[1] ? "num" : c[5] ? "long" : ""; });
    if (block.title) {
      var caption = element("caption");
      caption.append(element("span", "", block.title));
      made.append(caption);
    }
    block.columns.forEach(function (column, n) {
      var th = element("th", classes[n], column[7] || column[0]);
      th.scope = "col";
      if (column[8]) th.title = column[8];
      line.append(th);
    });
    head.append(line);
    block.rows.forEach(function (row) {
      var tr = element("tr");
      row[0].forEach(function (cell, n) {
        var td = element(n ? "td" : "th", classes[n]);
        if (!n) td.scope = "row";
        content(td, cell);
        tr.append(td);
      });
      body.append(tr);
    });
    made.append(head, body);
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", block.title || "table");
    box.append(made);
    return box;
  }

  function made(block) {
    if (block.type === "Table") return table(block);
    return element("p", block.tone || "", block.text || "");
  }

  function opened(place) {
    return Array.prototype.map.call(place.querySelectorAll("details[open] > summary"), function (s) { return s.textContent; });
  }

  function section(block) {
    var place = document.getElementById(block.id), text = JSON.stringify(block);
    if (!place || known[block.id] === text) return;
    known[block.id] = text;
    var open = opened(place), boxes = Array.prototype.slice.call(place.querySelectorAll(".scroll"));
    var focused = boxes.indexOf(document.activeElement), heading = place.querySelector("h2");
    place.replaceChildren.apply(place, [heading].concat((block.blocks || []).map(made)));
    place.querySelectorAll("details > summary").forEach(function (s) {
      if (open.indexOf(s.textContent) >= 0) s.parentNode.open = true;
    });
    boxes = place.querySelectorAll(".scroll");
    if (focused >= 0 && boxes[focused]) boxes[focused].focus({ preventScroll: true });
  }

  function tiles(figures) {
    var list = document.querySelector(".tiles");
    if (!list || !figures.length) return;
    list.replaceChildren.apply(list, figures.map(function (figure) {
      var tile = element("div"), cell = figure[1], note = [cell[2], figure[2]].filter(Boolean).join(", ");
      var value = element("dd", cell[0].length > 10 ? "words" : "", cell[0]);
      if (note) value.append(element("small", "", note));
      tile.append(element("dt", "", figure[0]), value);
      return tile;
    }));
  }

  window.labBlocks = function (shown) {
    if (shown.figures) tiles(shown.figures);
    // sections that did not exist when the page was made: it is made anew
    var all = shown.blocks || [];
    if (all.some(function (b) { return b.id && !document.getElementById(b.id); })) return false;
    all.forEach(section);
    return true;
  };
})();
