// Parts of a Content-Security-Policy for pages that contain their own script and style.
#pragma once

#include <string>
#include <string_view>

namespace muster::web {

// Returns the source expression that permits an inline script or style with exactly this text:
// 'sha256-<base64 of its SHA-256>', with the quotes.
std::string SourceOfText(std::string_view text);

}  // namespace muster::web
