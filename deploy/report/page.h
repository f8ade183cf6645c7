// Composes the page of `muster report` (docs/report.md): one HTML file without external references.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deploy/report/run.h"

namespace muster::report {

inline constexpr size_t kMaxPictures = 16;           // Maximum number of pictures of one tag.
inline constexpr size_t kMaxPictureBytes = 1 << 20;  // Maximum bytes of all pictures of a page.

// Returns the page. `price_per_hour` is the price of one member (chief or worker) for an hour.
// REQUIRES: NameRuns (run.h) was called for `runs`.
std::string Page(const std::vector<Run>& runs, std::optional<double> price_per_hour);

// The contents of page.html, page.css and page.js in this folder. The build embeds these files.
extern const char* const kPageHtml;
extern const char* const kPageCss;
extern const char* const kPageJs;

}  // namespace muster::report
