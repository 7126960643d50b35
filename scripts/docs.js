// A flag is searched for as it is written: the search would take a leading dash for "without this word".
document.addEventListener("input", ({ target }) => {
  if (target.matches("[data-md-component=search-query]") && /(^|\s)-/.test(target.value))
    target.value = target.value.replace(/(^|\s)-+/g, "$1")
}, true)
