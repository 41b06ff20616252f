// Marks the plan as outdated while the fields below it differ from those it was made of: then it cannot be started, or
// kept, by a mistake. And leads to the answer: the first wrong field, or the plan.
(function () {
  "use strict";
  if (!document.documentElement.hasAttribute("data-served")) return;
  var form = document.getElementById("options"), plan = document.getElementById("plan");
  var answer = document.querySelector("#options [aria-invalid]") || document.getElementById("error") ||
    document.getElementById("plan-title");

  // The fields that are filled in, but not the key, which differs for each page.
  function filled(form) {
    var texts = [];
    new FormData(form).forEach(function (value, name) {
      if (value && name !== "key") texts.push(name + "=" + value.replace(/\r\n?/g, "\n"));
    });
    return texts.sort().join("\0");
  }

  if (plan) {
    var own = plan.querySelector("form"), note = document.getElementById("outdated"), planned = filled(own);
    var check = function () {
      var differs = filled(form) !== planned;
      if (note.hidden === !differs) return;
      note.hidden = !differs;
      plan.classList.toggle("outdated", differs);
      own.querySelectorAll("button").forEach(function (button) { button.disabled = differs; });
    };
    form.addEventListener("input", check);
    form.addEventListener("change", check);
    form.addEventListener("reset", function () { setTimeout(check, 0); });
    addEventListener("pageshow", check);  // back from another page: the browser has put the fields back
  }
  // The address of the filled in fields, to be kept; that of a POST leads to an empty form.
  if (form.dataset.address) history.replaceState(null, "", form.dataset.address);
  if (answer) answer.focus();
})();
