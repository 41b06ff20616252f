// A table that is wider than its box ends behind a whole column: no heading is cut, and the shade at the edge shows that
// there is more.
(function () {
  "use strict";
  function fit(box) {
    box.style.maxWidth = "";
    var room = box.clientWidth, frame = box.offsetWidth - room, whole = 0;
    if (!room || box.scrollWidth <= room + 1) return;
    var left = box.getBoundingClientRect().left + box.clientLeft - box.scrollLeft;
    box.querySelectorAll("thead th").forEach(function (head) {
      var end = head.getBoundingClientRect().right - left;
      if (end <= room && end > whole) whole = end;
    });
    if (whole > room / 2) box.style.maxWidth = Math.ceil(whole + frame) + "px";
  }
  var watch = new ResizeObserver(function (seen) {
    seen.forEach(function (s) { s.target.querySelectorAll(":scope > .scroll").forEach(fit); });
  });
  document.querySelectorAll(".scroll").forEach(function (box) { fit(box); watch.observe(box.parentElement); });
})();
