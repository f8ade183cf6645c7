// Composes the page of `muster report` (docs/report.md): one HTML file without external references.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deploy/report/run.h"

namespace muster::report {

inline constexpr size_t kMaxPictures = 16;           // Of one tag.
inline constexpr size_t kMaxPictureBytes = 1 << 20;  // Of all pictures of a page.

// The page. REQUIRES: NameRuns was called.
std::string Page(const std::vector<Run>& runs, std::optional<double> price_per_hour);

// The files of this folder that the build embeds.
extern const char* const kPageHtml;
extern const char* const kPageCss;
extern const char* const kPageJs;

}  // namespace muster::report
