#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/base/short_list.h"
#include "common/cluster/verdict.h"
#include "common/flight/flight_story.h"

namespace muster {
namespace {

constexpr size_t kListed = 8;
constexpr size_t kNotes = 40;
// Longer notes are truncated. The full reason appears in another line.
constexpr size_t kNoteLength = 160;
constexpr double kWorthMoving = 0.001;  // In seconds. Smaller clock offsets are not mentioned.

// Returns a list such as "a, b and c", or "a, b, ... and 12 more".
std::string List(const std::vector<std::string>& texts) {
  std::string list;
  const size_t listed = texts.size() <= kListed + 1 ? texts.size() : kListed;
  for (size_t i = 0; i < listed; ++i) {
    const bool last = i + 1 == texts.size();
    list += (i == 0 ? "" : last ? " and " : ", ") + texts[i];
  }
  return list + AndMore(texts.size() - listed);
}

std::string Duration(double seconds) {
  return seconds < 1 ? fmt::format("{:.0f} ms", std::max(0.0, seconds) * 1000)
                     : fmt::format("{:.1f} s", seconds);
}

std::string Name(const FlightPart& part) {
  return fmt::format("{} (host {}, pid {})", TaskText(part.task), part.host, part.pid);
}

std::vector<std::string> TaskTexts(const std::vector<std::string>& tasks) {
  std::vector<std::string> texts;
  for (const std::string& task : tasks) texts.push_back(TaskText(task));
  return texts;
}

void AddBeginning(const FlightStory& s, std::vector<std::string>* lines) {
  lines->push_back(fmt::format("Generation {} of run {}: {} member{}, {}.",
                               GenerationText(s.generation), s.run_id, s.members.size(),
                               s.members.size() == 1 ? "" : "s", List(TaskTexts(s.members))));
  std::vector<std::string> names;
  for (const FlightPart& part : s.parts) names.push_back(Name(part));
  lines->push_back("Records: " + List(names) + ".");
  if (!s.missing.empty())
    lines->push_back(
        fmt::format("No record of {}: killed, frozen until the end, or disconnected from the "
                    "chief. A process that could not deliver its record wrote it to its host's "
                    "temporary folder (muster-{}-{}-*.json).",
                    List(TaskTexts(s.missing)), s.run_id, FlightFolder(s.generation)));
  for (const FlightPart& part : s.parts) {
    if (part.shared_operations == 0 || std::fabs(part.clock_offset) < kWorthMoving) continue;
    lines->push_back(fmt::format(
        "The clock of {} is {} {} {}'s: its times are shifted by this offset (measured at {} "
        "operations that both completed).",
        TaskText(part.task), Duration(std::fabs(part.clock_offset)),
        part.clock_offset > 0 ? "ahead of" : "behind", TaskText(s.parts.front().task),
        part.shared_operations));
  }
}

const char kIndent[] = "              ";

// Collects lines and sorts them by time. Lines with the same `place` stay together.
class Timeline {
 public:
  void Add(double wall, const std::string& text) { Add(wall, text, wall); }
  void Add(double wall, const std::string& text, double place) {
    lines_.emplace_back(place, (wall > 0 ? WallText(wall) + "  " : kIndent) + text);
  }
  void MoveTo(std::vector<std::string>* lines) {
    std::stable_sort(lines_.begin(), lines_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [at, line] : lines_) lines->push_back(std::move(line));
  }

 private:
  std::vector<std::pair<double, std::string>> lines_;
};

void AddOperations(const FlightStory& s, Timeline* timeline) {
  const auto add = [&](double wall, const std::string& text) {
    timeline->Add(wall, text, s.last_at > 0 ? s.last_at : s.started_at);
  };
  if (s.last_completed > 0) {
    const std::string what = s.last_operation.empty() ? "" : ", " + s.last_operation;
    const std::string step = s.last_step > 0 ? fmt::format(" of step {}", s.last_step) : "";
    add(s.last_at, fmt::format("{} completed collective {}{}{}.",
                               s.missing.empty() ? "all members" : "all of these", s.last_completed,
                               what, step));
  } else {
    add(s.started_at, "no collective operation was completed by all.");
  }
  const uint64_t next = s.last_completed + 1;
  std::vector<const FlightPart*> out;
  size_t in = 0;
  for (const FlightPart& part : s.parts) {
    if (!part.entered) {
      out.push_back(&part);
    } else if (++in <= kListed) {
      const std::string how = part.completed_next
                                  ? "and completed it"
                                  : "and was in it for " + Duration(part.end - part.entered_at);
      add(part.entered_at, fmt::format("{} entered collective {}, {} {}.", TaskText(part.task),
                                       next, part.operation, how));
    }
  }
  if (in > kListed) add(0, fmt::format("... and so did {} more.", in - kListed));
  if (out.size() > kListed) {
    add(0, fmt::format("{} had not entered it, among them:", out.size()));
    // The task that has been in another phase for the longest comes first.
    std::stable_sort(out.begin(), out.end(), [](const FlightPart* a, const FlightPart* b) {
      return a->phase_since < b->phase_since;
    });
    out.resize(kListed);
  }
  for (const FlightPart* part : out)
    add(0, fmt::format(
               "{} had not entered {}: it was in phase '{}' of step {} for {}.",
               TaskText(part->task), s.next ? fmt::format("collective {}", next) : "another one",
               PhaseName(part->phase), part->step, Duration(part->end - part->phase_since)));
  if (s.diverged) add(0, "They called different operations: the program diverges between ranks.");
}

std::string Cut(const std::string& text) {
  if (text.size() <= kNoteLength) return text;
  size_t end = kNoteLength;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + " ...";
}

// Adds one line for equal notes of several tasks.
void AddNotes(const FlightStory& s, Timeline* lines) {
  std::vector<std::pair<const FlightNote*, std::vector<std::string>>> groups;
  for (const FlightNote& note : s.notes) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return group.first->text == note.text;
    });
    const std::string who = TaskText(note.task);
    if (same == groups.end()) {
      groups.emplace_back(&note, std::vector<std::string>{who});
    } else if (std::find(same->second.begin(), same->second.end(), who) == same->second.end()) {
      same->second.push_back(who);
    }
  }
  size_t shown = 0;
  for (auto& [note, who] : groups) {
    if (++shown > kNotes) break;
    std::sort(who.begin(), who.end());
    lines->Add(note->at, fmt::format("{}: {}", List(who), Cut(note->text)));
  }
  if (groups.size() > kNotes)
    lines->Add(0, fmt::format("... and {} more.", groups.size() - kNotes), s.ended_at);
}

}  // namespace

std::vector<std::string> FlightLines(const FlightStory& s) {
  std::vector<std::string> lines;
  AddBeginning(s, &lines);
  lines.push_back("");
  Timeline timeline;
  if (s.started_at > 0) timeline.Add(s.started_at, "training started in this generation.");
  AddOperations(s, &timeline);
  AddNotes(s, &timeline);
  timeline.MoveTo(&lines);
  lines.push_back("");
  lines.push_back(fmt::format("Why it ended: {}", s.reason.empty() ? "not recorded" : s.reason));
  if (s.followed_by != 0)
    lines.push_back(fmt::format("Generation {} followed, with records of {}.",
                                GenerationText(s.followed_by), List(s.came_back)));
  return lines;
}

Json FlightJson(const FlightStory& s) {
  Json parts = Json::array(), notes = Json::array();
  for (const FlightPart& part : s.parts) {
    Json json = {{"task", part.task},
                 {"host", part.host},
                 {"pid", part.pid},
                 {"clock_offset_seconds", part.clock_offset},
                 {"completed", part.completed},
                 {"entered_next", part.entered},
                 {"step", part.step},
                 {"phase", PhaseName(part.phase)},
                 {"phase_seconds", std::max(0.0, part.end - part.phase_since)},
                 {"lost_events", part.lost_events}};
    if (part.entered) {
      json["operation"] = part.operation;
      json["in_it_seconds"] = std::max(0.0, part.end - part.entered_at);
      json["completed_next"] = part.completed_next;
    }
    if (!part.failure.empty()) json["failure"] = part.failure;
    parts.push_back(std::move(json));
  }
  for (const FlightNote& note : s.notes)
    notes.push_back({{"wall", note.at}, {"task", note.task}, {"text", note.text}});
  return {
      {"run_id", s.run_id},
      {"generation", GenerationText(s.generation)},
      {"members", s.members},
      {"missing", s.missing},
      {"last_completed",
       {{"sequence", s.last_completed}, {"operation", s.last_operation}, {"step", s.last_step}}},
      {"diverged", s.diverged},
      {"records", parts},
      {"events", notes},
      {"reason", s.reason},
      {"followed_by", s.followed_by == 0 ? Json() : Json(GenerationText(s.followed_by))},
      {"came_back", s.came_back}};
}

}  // namespace muster
