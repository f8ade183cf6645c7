// Escapes text for HTML. Pages contain text of a run's files only after escaping.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace muster::report {

// Escapes text for elements and for attributes in double quotes. Replaces invalid UTF-8 and control
// characters by U+FFFD.
std::string Escaped(std::string_view text);

// Makes JSON safe within <script type="application/json">. The result contains no '<'.
std::string EscapedJson(std::string json);

// Returns the value of a Content-Security-Policy that allows `script` and styles in the page, data
// URLs of images, and nothing else.
std::string PolicyFor(std::string_view script);

// Replaces each {{NAME}} of `page`. Does not look into the values. REQUIRES: each NAME is a key.
std::string Filled(std::string_view page, const std::map<std::string, std::string>& values);

}  // namespace muster::report
