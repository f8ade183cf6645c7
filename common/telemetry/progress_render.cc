// Renders a ProgressState.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/telemetry/progress.h"

namespace muster {
namespace {

constexpr int kLongBar = 24, kShortBar = 8;
// After this time without a new state, the bar shows the state's age instead of the time left.
constexpr Duration kStale = std::chrono::seconds(5);

// Returns the width of UTF-8 text in columns, as its number of code points. Wide and combining
// characters are not expected in names of metrics.
int Columns(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Clip(std::string_view text, int columns) {
  size_t end = 0;
  for (int used = 0; end < text.size(); ++end) {
    if ((text[end] & 0xC0) != 0x80 && used++ == columns) break;
  }
  return std::string(text.substr(0, end));
}

std::string FormatValue(double value) {
  const double magnitude = std::abs(value);
  if (value == 0 || (magnitude >= 1e-3 && magnitude < 1e5)) return fmt::format("{:.4f}", value);
  return fmt::format("{:.3e}", value);
}

// Returns texts such as "loss 0.3012" and "accuracy 0.8931". The loss is first, and the others are
// sorted by name.
std::vector<std::string> Values(const ProgressState& state) {
  std::vector<std::string> values;
  for (const auto& [name, value] : state.metrics) {
    const auto place = name == "loss" ? values.begin() : values.end();
    values.insert(place, fmt::format("{} {}", name, FormatValue(value)));
  }
  return values;
}

std::string OutOf(int64_t done, int64_t total) {
  return total > 0 ? fmt::format("{}/{}", done, total) : fmt::format("{}", done);
}

std::string Epoch(const ProgressState& state) {
  return "epoch " + OutOf(state.epoch + 1, state.epochs);
}

std::string Rate(const ProgressState& state) {
  return state.examples_per_second > 0 ? FormatCount(state.examples_per_second) + " examples/s"
                                       : "";
}

std::string Wait(const ProgressState& state) {
  return state.wait_share >= 0 ? fmt::format("wait {:.0f} %", 100 * std::min(1.0, state.wait_share))
                               : "";
}

std::string Input(const ProgressState& state) {
  return state.input_share >= 0
             ? fmt::format("input {:.0f} %", 100 * std::min(1.0, state.input_share))
             : "";
}

std::string Bar(double fraction, int columns, bool unicode) {
  fraction = std::clamp(fraction, 0.0, 1.0);
  std::string bar;
  if (unicode) {
    const int halves = static_cast<int>(fraction * columns * 2);
    for (int i = 0; i < columns; ++i) {
      bar += i < halves / 2 ? "━" : i == halves / 2 && halves % 2 == 1 ? "╸" : "─";
    }
    return bar;
  }
  const int inner = columns - 2, full = static_cast<int>(fraction * inner);
  for (int i = 0; i < inner; ++i) bar += i < full ? '=' : i == full ? '>' : ' ';
  return "[" + bar + "]";
}

struct Piece {
  std::string text;
  int importance;  // The pieces with the lowest importance are dropped first.
};

int Width(const std::vector<Piece>& pieces) {
  int width = -2;
  for (const Piece& piece : pieces) width += Columns(piece.text) + 2;
  return width;
}

std::string Join(const std::vector<Piece>& pieces) {
  std::string line;
  for (const Piece& piece : pieces) line += (line.empty() ? "" : "  ") + piece.text;
  return line;
}

std::string TimeLeft(const ProgressState& state, Duration age) {
  if (age > kStale) return fmt::format("no progress for {}", FormatSeconds(Seconds(age)));
  if (state.seconds_left < 0) return "";
  return FormatSeconds(std::max(0.0, state.seconds_left - Seconds(age))) + " left";
}

std::vector<Piece> Pieces(const ProgressState& state, int bar_columns, Duration age, bool unicode) {
  std::vector<Piece> pieces;
  auto add = [&](std::string text, int importance) {
    if (!text.empty()) pieces.push_back({std::move(text), importance});
  };
  add(state.kind == ProgressState::Kind::kEvaluate ? state.split : Epoch(state), 100);
  if (state.total > 0) {
    const double fraction = static_cast<double>(state.done) / static_cast<double>(state.total);
    add(Bar(fraction, bar_columns, unicode), 50);
  }
  add(OutOf(state.done, state.total), 80);
  add(Rate(state), 60);
  int importance = 90;
  for (std::string& value : Values(state)) {
    add(std::move(value), importance);
    importance = importance == 90 ? 40 : importance - 1;
  }
  add(Wait(state), 45);
  add(TimeLeft(state, age), 70);
  return pieces;
}

}  // namespace

std::string FormatSeconds(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  if (s < 24 * 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{} d {} h", s / 86400, s / 3600 % 24);
}

std::string FormatCount(double count) {
  if (!(count >= 0 && count < 1e15)) return fmt::format("{:.3g}", count);
  if (count < 10) return fmt::format("{:.2f}", count);
  return FormatGrouped(std::llround(count));
}

std::string FormatGrouped(int64_t count) {
  std::string digits = fmt::format("{}", count);
  for (size_t place = digits.size(); place > 3;) digits.insert(place -= 3, 1, ',');
  return digits;
}

std::string RenderProgressBar(const ProgressState& state, int width, Duration age, bool unicode) {
  if (width <= 0 || state.kind == ProgressState::Kind::kEnd) return "";
  const int spare = width - Width(Pieces(state, kLongBar, age, unicode));
  const int bar = std::clamp(kLongBar + std::min(0, spare), kShortBar, kLongBar);
  std::vector<Piece> pieces = Pieces(state, bar, age, unicode);
  while (pieces.size() > 1 && Width(pieces) > width) {
    pieces.erase(std::min_element(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return a.importance < b.importance;
    }));
  }
  return Clip(Join(pieces), width);
}

std::string RenderProgressLine(const ProgressState& state) {
  std::string line = state.split == "test" ? "test" : Epoch(state);
  std::vector<std::string> facts = Values(state);
  switch (state.kind) {
    case ProgressState::Kind::kStep:
      line += ", step " + OutOf(state.done, state.total);
      facts.push_back(Rate(state));
      facts.push_back(Wait(state));
      facts.push_back(TimeLeft(state, Duration::zero()));
      break;
    case ProgressState::Kind::kEvaluate:
      return fmt::format("{}: {} {}", Epoch(state), state.split, OutOf(state.done, state.total));
    case ProgressState::Kind::kEpoch:
      if (state.split == "validation") line += " validation";
      facts.push_back(Rate(state));
      facts.push_back(Input(state));
      if (state.seconds > 0) facts.push_back(fmt::format("{:.1f} s", state.seconds));
      break;
    case ProgressState::Kind::kEnd:
      return "";
  }
  std::erase(facts, "");
  return fmt::format("{}: {}", line, fmt::join(facts, ", "));
}

}  // namespace muster
