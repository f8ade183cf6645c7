#include "common/summary/event_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "common/base/files/created_files.h"
#include "common/base/files/record.h"
#include "common/summary/histogram.h"
#include "common/summary/png.h"
#include "proto/event.pb.h"

namespace muster::summary {
namespace {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

// Returns the name of a new file. TensorBoard reads the files of a folder in the order of their
// names, and an event invalidates only earlier records. The time in the name is therefore later
// than in all other names, even if clocks differ.
std::string FileName(const std::string& directory) {
  auto seconds = static_cast<int64_t>(WallSeconds());
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kEventFilePrefix)) continue;
    seconds = std::max<int64_t>(seconds, std::atoll(name.c_str() + kEventFilePrefix.size()) + 1);
  }
  // A restarted container has the host name and often the pid of the one before.
  static const uint32_t process = std::random_device()();
  return fmt::format("{}{:010}.{}.{}.{:08x}", kEventFilePrefix, seconds, HostName(), getpid(),
                     process);
}

Event At(int64_t step) {
  Event event;
  event.set_wall_time(WallSeconds());
  event.set_step(step);
  return event;
}

Summary::Value* AddTensor(const std::string& tag, const char* plugin, DataClass data_class,
                          Event* event) {
  Summary::Value* value = event->mutable_summary()->add_value();
  value->set_tag(tag);
  value->mutable_metadata()->mutable_plugin_data()->set_plugin_name(plugin);
  value->mutable_metadata()->set_data_class(data_class);
  value->mutable_tensor()->set_dtype(Tensor::STRING);
  value->mutable_tensor()->mutable_tensor_shape();
  return value;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventWriter>> EventWriter::Open(const std::string& directory,
                                                               Options options) {
  if (options.fence) MUSTER_RETURN_IF_ERROR(options.fence());
  if (const int error = MakeFolders(directory); error != 0) {
    return ConfigurationError(fmt::format("cannot make the folder for summaries {}: {}", directory,
                                          std::strerror(error)));
  }
  std::string path = directory + "/" + FileName(directory);
  const int fd = CreateFile(path, O_WRONLY | O_EXCL | O_APPEND).Release();
  if (fd < 0) {
    return ConfigurationError(
        fmt::format("cannot write summaries to {}: {}", path, std::strerror(errno)));
  }
  auto writer = OnDescriptor(fd, std::move(path), options);
  // Writes the first record now, because an event file needs it. Ignores a full disk, which may
  // have room later.
  const absl::Status first = writer->Flush();
  if (!writer->refused_.ok()) return first;
  return writer;
}

std::unique_ptr<EventWriter> EventWriter::OnDescriptor(int fd, std::string path, Options options) {
  return std::unique_ptr<EventWriter>(new EventWriter(fd, std::move(path), options));
}

EventWriter::EventWriter(int fd, std::string path, Options options)
    : fd_(fd), path_(std::move(path)), options_(std::move(options)), last_flush_(Clock::now()) {
  Event version = At(0);
  version.clear_step();
  version.set_file_version("brain.Event:2");
  AppendRecord(version.SerializeAsString(), &pending_);
  Event start = At(options_.first_step);
  start.mutable_session_log()->set_status(SessionLog::START);
  AppendRecord(start.SerializeAsString(), &pending_);
}

EventWriter::~EventWriter() {
  Flush().IgnoreError();
  close(fd_);
}

absl::Status EventWriter::Scalars(int64_t step, const Values& values) {
  Event event = At(step);
  for (const auto& [tag, number] : values) {
    Summary::Value* value = event.mutable_summary()->add_value();
    value->set_tag(tag);
    value->set_simple_value(static_cast<float>(number));
  }
  return Append(event);
}

absl::Status EventWriter::Text(int64_t step, const std::string& tag, const std::string& markdown) {
  Event event = At(step);
  AddTensor(tag, "text", DATA_CLASS_TENSOR, &event)->mutable_tensor()->add_string_val(markdown);
  return Append(event);
}

absl::Status EventWriter::Images(int64_t step, const std::string& tag, const Pictures& pictures) {
  const auto [count, height, width, channels, pixels] = pictures;
  const size_t size = static_cast<size_t>(height) * width * channels;
  if (count < 1 || height < 1 || width < 1 || pixels.size() != count * size) {
    return ProgramError(fmt::format("images {}: {} bytes are not {} x {} x {} x {}", tag,
                                    pixels.size(), count, height, width, channels));
  }
  Event event = At(step);
  // The format of the plugin "images" is width, height, and one PNG for each picture.
  Tensor* tensor = AddTensor(tag, "images", DATA_CLASS_BLOB_SEQUENCE, &event)->mutable_tensor();
  tensor->mutable_tensor_shape()->add_dim()->set_size(count + 2);
  tensor->add_string_val(std::to_string(width));
  tensor->add_string_val(std::to_string(height));
  for (int i = 0; i < count; ++i) {
    auto file = EncodePng(pixels.data() + i * size, height, width, channels);
    if (!file.ok()) return Annotate(file.status(), fmt::format("images {}: ", tag));
    tensor->add_string_val(*std::move(file));
  }
  return Append(event);
}

absl::Status EventWriter::Histogram(int64_t step, const std::string& tag,
                                    const Distribution& distribution) {
  Event event = At(step);
  Summary::Value* value = event.mutable_summary()->add_value();
  value->set_tag(tag);
  summary::Histogram* histogram = value->mutable_histogram();
  histogram->set_min(distribution.min);
  histogram->set_max(distribution.max);
  histogram->set_num(static_cast<double>(distribution.count));
  histogram->set_sum(distribution.sum);
  histogram->set_sum_squares(distribution.sum_squares);
  *histogram->mutable_bucket_limit() = {distribution.limits.begin(), distribution.limits.end()};
  *histogram->mutable_bucket() = {distribution.counts.begin(), distribution.counts.end()};
  if (distribution.not_finite > 0) {
    Summary::Value* others = event.mutable_summary()->add_value();
    others->set_tag(tag + "/not_finite");
    others->set_simple_value(static_cast<float>(distribution.not_finite));
  }
  return Append(event);
}

absl::Status EventWriter::PluginData(int64_t step, const std::string& tag, const char* plugin,
                                     std::string content) {
  Event event = At(step);
  Summary::Value* value = AddTensor(tag, plugin, DATA_CLASS_TENSOR, &event);
  value->mutable_metadata()->mutable_plugin_data()->set_content(std::move(content));
  // The tag needs a value. An empty one, because all is in the metadata.
  value->mutable_tensor()->set_dtype(Tensor::FLOAT);
  value->mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(0);
  return Append(event);
}

absl::Status EventWriter::Graph(int64_t step, std::string graph_def) {
  Event event = At(step);
  event.set_graph_def(std::move(graph_def));
  return Append(event);
}

absl::Status EventWriter::Append(const Event& event) {
  if (!refused_.ok()) return refused_;
  if (pending_.size() < kMaxPending) AppendRecord(event.SerializeAsString(), &pending_);
  if (Clock::now() - last_flush_ < options_.flush_interval) return absl::OkStatus();
  return Flush();
}

absl::Status EventWriter::Flush() {
  last_flush_ = Clock::now();
  if (refused_.ok() && options_.fence && !pending_.empty()) refused_ = options_.fence();
  if (!refused_.ok()) {
    pending_.clear();
    return refused_;
  }
  size_t done = 0;
  absl::Status status;
  if (options_.check_disk && !pending_.empty()) {
    if (const absl::Status full = options_.check_disk(); !full.ok())
      status = DataError(fmt::format("cannot write summaries to {}: {}", path_, Message(full)));
  }
  while (status.ok() && done < pending_.size()) {
    const ssize_t written = write(fd_, pending_.data() + done, pending_.size() - done);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno != EINTR) {
      status =
          DataError(fmt::format("cannot write summaries to {}: {}", path_, std::strerror(errno)));
    }
  }
  pending_.erase(0, done);
  return status;
}

absl::Status EventWriter::Sync() {
  MUSTER_RETURN_IF_ERROR(Flush());
  if (fdatasync(fd_) == 0) return absl::OkStatus();
  return DataError(
      fmt::format("cannot write summaries to {} to the disk: {}", path_, std::strerror(errno)));
}

}  // namespace muster::summary
