(function () {
  "use strict";
  var errors = [];
  addEventListener("error", function (e) { errors.push(String(e.message)); });
  addEventListener("unhandledrejection", function (e) { errors.push(String(e.reason)); });
  document.addEventListener("securitypolicyviolation", function (e) { errors.push("policy: " + e.blockedURI); });
  ["error", "warn"].forEach(function (level) {
    console[level] = function () { errors.push(level + ": " + Array.prototype.join.call(arguments, " ")); };
  });

  function figure(node) {
    var svg = node.querySelector("svg");
    var label = node.querySelector(".role-axis-label text");
    return {
      id: node.id,
      drawn: node.dataset.drawn,
      wanted: Number(node.dataset.marks),
      marks: node.querySelectorAll(".mark-symbol.role-mark > *, .mark-rect.role-mark > *").length,
      lines: node.querySelectorAll(".mark-line.role-mark > *").length,
      width: svg ? svg.getBoundingClientRect().width : 0,
      room: node.querySelector(".plot").getBoundingClientRect().width,
      label: label ? label.getAttribute("fill") : null,
      labels: Array.prototype.map.call(node.querySelectorAll(".role-axis-label text"), function (t) { return t.textContent; }),
      text: node.innerText,
      fills: Array.prototype.map.call(
        node.querySelectorAll(".role-mark > path"),
        function (p) { return p.getAttribute("fill") + p.getAttribute("stroke"); }
      )
    };
  }

  function wide() {
    return Array.prototype.filter.call(document.querySelectorAll("body *"), function (node) {
      return !node.closest(".scroll, pre") && node.getBoundingClientRect().right > innerWidth + 1;
    }).map(function (node) { return node.tagName + "." + node.className; });
  }

  function report() {
    var found = {
      errors: errors,
      innerWidth: innerWidth,
      scrollWidth: document.scrollingElement.scrollWidth,
      wide: wide(),
      dark: matchMedia("(prefers-color-scheme: dark)").matches,
      background: getComputedStyle(document.body).backgroundColor,
      colour: getComputedStyle(document.body).color,
      resources: performance.getEntriesByType("resource").map(function (r) { return r.name; }),
      figures: Array.prototype.map.call(document.querySelectorAll("figure.chart"), figure),
      focusable: document.querySelectorAll("main [tabindex], main summary, button:not([hidden]), a[href]").length,
      hooked: typeof window.hooked
    };
    var pre = document.createElement("pre");
    pre.id = "probe";
    pre.textContent = JSON.stringify(found);
    document.body.appendChild(pre);
  }

  function wait(left) {
    if (document.documentElement.dataset.ready !== "yes" && left > 0) { setTimeout(wait, 50, left - 1); return; }
    /*ACT*/
    setTimeout(report, 500);
  }
  addEventListener("load", function () { wait(200); });
})();
