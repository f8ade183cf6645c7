// Escapes text for the HTML page of `muster report`. Callers must escape all text from a run's
// files before they insert the text into the page.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace muster::report {

// Escapes text for the content of elements, and for attributes in double quotes. Replaces invalid
// UTF-8 and control characters by U+FFFD.
std::string Escaped(std::string_view text);

// Makes JSON text safe as the content of <script type="application/json">. The result contains no
// '<'.
std::string EscapedJson(std::string json);

// Returns the value of a Content-Security-Policy for a page. The policy allows only the inline
// script `script`, inline styles, and images in data URLs.
std::string PolicyFor(std::string_view script);

// Replaces each {{NAME}} in `page` by values[NAME]. A {{NAME}} in a value stays unchanged.
// REQUIRES: `values` has a key for each NAME in `page`.
std::string Filled(std::string_view page, const std::map<std::string, std::string>& values);

}  // namespace muster::report
