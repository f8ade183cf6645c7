#include "deploy/report/page.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/telemetry/progress.h"
#include "deploy/report/curves.h"
#include "deploy/report/html.h"
#include "deploy/report/losses.h"
#include "deploy/report/split.h"
#include "deploy/report/table.h"
#include "muster/version.h"

namespace muster::report {
namespace {

std::string ProblemsHtml(const std::vector<Run>& runs) {
  std::string html;
  for (const Run& run : runs)
    for (const std::string& problem : run.problems)
      html += fmt::format("<li><b>{}</b>: {}</li>\n", Escaped(run.name), Escaped(problem));
  for (const Run& run : runs)
    if (run.result.is_object() && run.result.contains("cause") && run.result["cause"].is_string())
      html += fmt::format("<li><b>{}</b> ended: {}</li>\n", Escaped(run.name),
                          Escaped(run.result["cause"].get<std::string>()));
  return html.empty() ? "" : "<ul class=\"problems\">" + html + "</ul>";
}

std::string Section(const char* id, const char* title, const char* note, const std::string& rows) {
  if (rows.empty()) return "";
  return fmt::format(
      "<section id=\"{}\"><h2>{}</h2>{}<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"{}\"><table>{}</table></div></section>\n",
      id, title, note, title, rows);
}

std::string MarkTime(const Mark& mark, const Run& run) {
  if (mark.wall <= 0 || run.began <= 0) return "–";
  const double seconds = std::max(0.0, mark.wall - run.began);
  if (!(seconds < 4e9)) return "–";  // Damaged.
  return (mark.estimated ? "about " : "") +
         (seconds < 60 ? fmt::format("{:.1f} s", seconds) : FormatSeconds(seconds));
}

std::string MarksHtml(const std::vector<Run>& runs, const std::vector<std::vector<Mark>>& marks) {
  std::string rows;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const Mark& mark : marks[i])
      rows += fmt::format(
          "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
          "<td class=\"n\">{}</td><td class=\"text\">{}</td></tr>\n",
          Escaped(runs[i].name), KindName(mark.kind), FormatGrouped(mark.step),
          MarkTime(mark, runs[i]), mark.seconds < 0 ? "–" : fmt::format("{:.1f} s", mark.seconds),
          Escaped(mark.text));
  }
  if (rows.empty()) return "";
  return "<thead><tr><th scope=\"col\">run</th><th scope=\"col\">kind</th><th scope=\"col\" "
         "class=\"n\">after step</th><th scope=\"col\" class=\"n\">time since the start</th><th "
         "scope=\"col\" class=\"n\">time lost</th><th "
         "scope=\"col\">what</th></tr></thead>\n<tbody>" +
         rows + "</tbody>";
}

std::string BarHtml(const StepSplit& split, double longest) {
  std::string html = "<div class=\"bar\" aria-hidden=\"true\">";
  const std::pair<const char*, double> parts[] = {
      {"compute", split.compute}, {"wait", split.wait}, {"input", split.input}};
  for (const auto& [name, seconds] : parts)
    html += fmt::format("<span class=\"{}\" style=\"width:{:.2f}%\"></span>", name,
                        100 * seconds / longest);
  return html + "</div>";
}

std::string SplitsHtml(const std::vector<Run>& runs) {
  std::vector<std::pair<const Run*, StepSplit>> all;
  double longest = 1e-9;
  for (const Run& run : runs) {
    for (StepSplit& split : SplitsOf(run)) {
      longest = std::max(longest, split.compute + split.wait + split.input);
      all.emplace_back(&run, std::move(split));
    }
  }
  std::string rows;
  for (const auto& [run, split] : all)
    rows += fmt::format(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{:.3g}</td><td "
        "class=\"n\">{:.3g}</td><td class=\"n\">{:.3g}</td><td "
        "class=\"wide\">{}</td><td>{}</td></tr>\n",
        Escaped(run->name), Escaped(split.task), 1000 * split.compute, 1000 * split.wait,
        1000 * split.input, BarHtml(split, longest), Escaped(split.source));
  if (rows.empty()) return "";
  return "<thead><tr><th scope=\"col\">run</th><th scope=\"col\">task</th><th scope=\"col\" "
         "class=\"n\"><i class=\"key compute\"></i>compute, ms</th><th scope=\"col\" "
         "class=\"n\"><i class=\"key wait\"></i>wait, ms</th><th scope=\"col\" class=\"n\"><i "
         "class=\"key input\"></i>input, ms</th><th scope=\"col\">a step</th><th "
         "scope=\"col\">source</th></tr></thead>\n<tbody>" +
         rows + "</tbody>";
}

// ---- Pictures

bool IsPng(const std::string& file) { return file.starts_with("\x89PNG\r\n\x1a\n"); }

std::string PictureHtml(const Run& run, const std::string& folder, const std::string& tag,
                        const summary::PictureSet& set, size_t* bytes_left) {
  std::string shown;
  size_t count = 0;
  for (const std::string& file : set.files) {
    if (count >= kMaxPictures || !IsPng(file) || file.size() > *bytes_left) continue;
    *bytes_left -= file.size();
    ++count;
    shown += fmt::format(
        "<img alt=\"{} {} of {}, picture {}\" width=\"{}\" height=\"{}\" "
        "src=\"data:image/png;base64,{}\">",
        Escaped(folder), Escaped(tag), Escaped(run.name), count,
        std::clamp<int64_t>(set.width, 1, 4096), std::clamp<int64_t>(set.height, 1, 4096),
        absl::Base64Escape(file));
  }
  const size_t left_out = set.files.size() - count;
  return fmt::format("<figure><figcaption><b>{}</b>: {} {}, step {}{}</figcaption>{}</figure>\n",
                     Escaped(run.name), Escaped(folder), Escaped(tag), FormatGrouped(set.step),
                     left_out == 0 ? "" : fmt::format(", {} more not shown", left_out), shown);
}

std::string PicturesHtml(const std::vector<Run>& runs) {
  std::string html;
  for (const Run& run : runs) {
    size_t bytes_left = kMaxPictureBytes / runs.size();  // Each run gets the same share.
    for (const char* folder : {"eval", "test", "validation"}) {
      const auto found = run.folders.find(folder);
      if (found == run.folders.end()) continue;
      for (const auto& [tag, set] : found->second.pictures)
        html += PictureHtml(run, folder, tag, set, &bytes_left);
    }
  }
  if (html.empty()) return "";
  return "<section id=\"pictures\"><h2>Pictures of the last passes</h2>" + html + "</section>\n";
}

std::string Title(const std::vector<Run>& runs) {
  std::string title = "Muster report: " + runs.front().name;
  if (runs.size() == 2) title += " and " + runs.back().name;
  if (runs.size() > 2) title += fmt::format(" and {} more runs", runs.size() - 1);
  return title;
}

}  // namespace

std::string Page(const std::vector<Run>& runs, std::optional<double> price_per_hour) {
  std::vector<std::vector<Mark>> marks;
  for (const Run& run : runs) marks.push_back(MarksOf(run));
  const std::string price =
      price_per_hour
          ? fmt::format("<p>The cost is {:g} for each member and hour.</p>", *price_per_hour)
          : "";
  return Filled(
      kPageHtml,
      {{"POLICY", Escaped(PolicyFor(kPageJs))},
       {"TITLE", Escaped(Title(runs))},
       {"STYLE", kPageCss},
       {"SCRIPT", kPageJs},
       {"VERSION", MUSTER_VERSION},
       {"MADE", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))},
       {"PROBLEMS", ProblemsHtml(runs)},
       {"TABLE", TableHtml(TableJson(runs, price_per_hour))},
       {"PRICE", price},
       {"JOBS", Section("jobs", "Differences between the jobs", "", JobsHtml(runs))},
       {"SPLITS",
        Section("steps", "Time of a step by task",
                "<p>Compute is forward, backward and update. Wait is the time in reductions, "
                "including the wait for other tasks.</p>",
                SplitsHtml(runs))},
       {"MARKS", Section("losses", "Losses and restarts", "", MarksHtml(runs, marks))},
       {"PICTURES", PicturesHtml(runs)},
       {"DATA", EscapedJson(Dump(CurvesJson(runs, marks)))}});
}

}  // namespace muster::report
