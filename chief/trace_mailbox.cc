#include "chief/trace_mailbox.h"

#include "common/base/logging.h"
#include "common/flight/trace_file.h"

namespace muster::chief {
namespace {

using checkpoint::JoinPath;

bool IsId(const std::string& id) {
  return !id.empty() && id.size() <= 32 &&
         id.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::optional<TraceMailbox::Request> Parse(const std::string& text) {
  const auto json = ParseJson(text, kTraceRequestFile);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  TraceMailbox::Request request;
  const auto id = json->find("id"), steps = json->find("steps"),
             limit = json->find("limit_seconds");
  if (id == json->end() || !id->is_string() || steps == json->end() ||
      !steps->is_number_integer() || limit == json->end() || !limit->is_number())
    return std::nullopt;
  request.id = id->get<std::string>();
  request.steps = steps->get<int64_t>();
  request.limit_seconds = limit->get<double>();
  return IsId(request.id) ? std::optional(request) : std::nullopt;
}

}  // namespace

bool TraceMailbox::HasRequest() const {
  const auto there = files_->Exists(JoinPath(folder_, kTraceRequestFile));
  return there.ok() && *there;
}

std::optional<TraceMailbox::Request> TraceMailbox::Take() {
  const std::string path = JoinPath(folder_, kTraceRequestFile);
  const auto text = checkpoint::ReadFile(*files_, path);
  // If it cannot be removed, it would be taken again and again.
  if (const absl::Status removed = files_->Remove(path); !removed.ok()) return std::nullopt;
  auto request = text.ok() ? Parse(*text) : std::nullopt;
  if (!request) LogWarning("{} is not a request for a trace", path);
  return request;
}

absl::Status TraceMailbox::Answer(const std::string& id, const Json& answer) {
  const std::string path = JoinPath(folder_, TraceAnswerFile(id)), part = path + ".part";
  MUSTER_ASSIGN_OR_RETURN(auto file, files_->Create(part));
  MUSTER_RETURN_IF_ERROR(file->Append(Dump(answer, 1) + "\n"));
  MUSTER_RETURN_IF_ERROR(file->Close());
  return files_->Rename(part, path);
}

}  // namespace muster::chief
