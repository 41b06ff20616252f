// Leaves fields without a value out of the address.
(function () {
  "use strict";
  document.querySelectorAll("form.asking").forEach(function (form) {
    form.addEventListener("submit", function () {
      form.querySelectorAll("input, select").forEach(function (input) { input.disabled = !input.value.trim(); });
      setTimeout(function () {  // for who comes back
        form.querySelectorAll("input, select").forEach(function (input) { input.disabled = false; });
      }, 0);
    });
  });
})();
