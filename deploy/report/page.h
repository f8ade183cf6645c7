// Composes the page of `muster report` (docs/report.md): one HTML file without external references.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deploy/report/run.h"

namespace muster::report {

inline constexpr size_t kMaxPictures = 16;           // The limit of one tag.
inline constexpr size_t kMaxPictureBytes = 1 << 20;  // The limit of all pictures of a page.

// Returns the page. `price_per_hour` is the price of one member for an hour. REQUIRES: NameRuns was
// called.
std::string Page(const std::vector<Run>& runs, std::optional<double> price_per_hour);

// The files of this folder that the build embeds.
extern const char* const kPageHtml;
extern const char* const kPageCss;
extern const char* const kPageJs;

}  // namespace muster::report
