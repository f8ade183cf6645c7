// Helps to write the Content-Security-Policy of a page that contains inline scripts and styles.
#pragma once

#include <string>
#include <string_view>

namespace muster::web {

// Returns the source expression that permits an inline script or style with exactly this text. The
// result has the form 'sha256-<base64 of the SHA-256 of the text>', including the quotes.
std::string SourceOfText(std::string_view text);

}  // namespace muster::web
