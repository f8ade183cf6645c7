// The callback csv_logger, as Keras' CSVLogger: writes one line for each epoch.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>

#include "common/base/files/created_files.h"
#include "common/base/files/files.h"
#include "common/base/json/json_integer.h"
#include "common/base/logging.h"
#include "common/train/callbacks/builtin.h"

namespace muster {
namespace {

class CsvLogger final : public Callback {
 public:
  CsvLogger(std::string filename, std::string separator, bool append)
      : filename_(std::move(filename)), separator_(std::move(separator)), append_(append) {}

  // Truncates the file to its size in the restored state. The run writes all later lines again.
  void train_begin(CallbackContext& context) override {
    if (context.model_dir().empty()) return;
    path_ = PathFrom(context.model_dir(), filename_);
    MakeFolders(std::filesystem::path(path_).parent_path());
    std::error_code error;
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path_, error));
    const bool there = !error;
    if (bytes_ < 0) {  // The run begins: no state was restored.
      bytes_ = there && append_ ? size : 0;
      header_ = bytes_ == 0;
    } else if (!there || size < bytes_) {
      LogWarning(
          "csv_logger: {} lacks lines that were written to it: the file is written from its "
          "beginning",
          path_);
      bytes_ = 0;
      header_ = true;
    }
    if (there && size > bytes_ && !CutBack()) Failed(errno);
  }

  void epoch_end(CallbackContext& context) override {
    if (path_.empty()) return;
    if (columns_.empty()) {
      for (const auto& [name, value] : context.metrics())
        if (name != "learning_rate") columns_.push_back(name);
    }
    std::string text;
    if (header_) text = Line("epoch", "learning_rate", columns_);
    const auto value = [&](const std::string& name) {
      const auto found = context.metrics().find(name);
      return found == context.metrics().end() ? "NA" : fmt::format("{}", found->second);
    };
    std::vector<std::string> values;
    for (const std::string& name : columns_) values.push_back(value(name));
    text += Line(std::to_string(context.epoch()), value("learning_rate"), values);
    if (Append(text)) header_ = false;
  }

  Json state() const override {
    return {{"filename", filename_}, {"bytes", bytes_}, {"columns", columns_}, {"header", header_}};
  }
  void set_state(const Json& state) override {
    // A state for another file does not apply. States in older checkpoints have no file name.
    if (state.value("filename", filename_) != filename_) return;
    bytes_ = JsonInteger(state.at("bytes"));
    columns_ = state.at("columns").get<std::vector<std::string>>();
    header_ = state.at("header").get<bool>();
  }
  bool decides_in_steps() const override { return false; }

 private:
  // Returns the text of a field. Quotes it if it contains a separator, a quote or a line end.
  std::string Field(const std::string& text) const {
    if (text.find_first_of("\"\r\n" + separator_) == std::string::npos) return text;
    std::string quoted = "\"";
    for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + "\"";
  }
  std::string Line(const std::string& epoch, const std::string& rate,
                   const std::vector<std::string>& fields) const {
    std::string line = epoch + separator_ + rate;
    for (const std::string& field : fields) line += separator_ + Field(field);
    return line + "\r\n";
  }
  bool Append(const std::string& text) {
    if (partial_ && !CutBack()) return Failed(errno);
    const Fd file = CreateFile(path_, O_WRONLY | O_APPEND);
    if (!file) return Failed(errno);
    for (std::string_view left = text; !left.empty();) {
      const ssize_t written = write(file.get(), left.data(), left.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        const int error = errno;
        CutBack();
        return Failed(error);
      }
      left.remove_prefix(static_cast<size_t>(written));
    }
    bytes_ += static_cast<int64_t>(text.size());
    return true;
  }
  // Truncates the file to `bytes_`, for example to remove the partial line that a full disk leaves.
  // Returns false with errno set if that fails.
  bool CutBack() {
    const Fd file = CreateFile(path_, O_WRONLY);
    partial_ = !file || ftruncate(file.get(), bytes_) != 0;
    return !partial_;
  }
  bool Failed(int error) {
    LogWarning("csv_logger: cannot write {}: {}; training continues", path_, FileErrorText(error));
    return false;
  }

  const std::string filename_, separator_;
  const bool append_;
  std::string path_;
  std::vector<std::string> columns_;
  int64_t bytes_ = -1;    // Size of the complete lines in the file. -1 if the run has not begun.
  bool header_ = true;    // True if the header must still be written.
  bool partial_ = false;  // True if the file may be longer than `bytes_`.
};

}  // namespace

absl::StatusOr<BuiltCallback> MakeCsvLogger(const std::string& place, JsonObject& keys,
                                            const CallbackFacts& facts) {
  std::string filename, separator = ",";
  bool append = false;
  keys.Read("filename", &filename).Read("separator", &separator).Read("append", &append);
  if (filename.empty()) keys.Fail("filename", "is missing: name a file, such as \"log.csv\"");
  if (separator.size() != 1) keys.Fail("separator", "must be one character");
  MUSTER_RETURN_IF_ERROR(CheckWrites(place, "csv_logger", filename, facts));
  return BuiltCallback{std::make_shared<CsvLogger>(filename, separator, append), {}};
}

}  // namespace muster
