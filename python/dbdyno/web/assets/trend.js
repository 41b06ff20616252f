// A figure over time: keeps the address short, and leads from the table to the runs.
(function () {
  "use strict";
  var form = document.querySelector("form[action='/trend']");
  if (!document.documentElement.hasAttribute("data-served") || !form) return;
  form.addEventListener("submit", function () {
    form.querySelectorAll("input, select").forEach(function (field) { field.disabled = !field.value; });
  });
  addEventListener("pageshow", function () {  // back from the next page
    form.querySelectorAll("input, select").forEach(function (field) { field.disabled = false; });
  });
  document.querySelectorAll("#runs tbody th").forEach(function (cell) {
    var link = document.createElement("a"), id = cell.textContent;
    if (!/^\d{8}-\d{6}-/.test(id)) return;  // an interval of snapshots
    link.href = "/run/" + encodeURIComponent(id);
    link.textContent = id;
    cell.replaceChildren(link);
  });
})();
