// Feeds bytes as the description of a parameter server's shards: proto::CreateRequest, and a
// chunk's content.
#include "common/push_pull/options.h"
#include "common/push_pull/variable_messages.h"
#include "proto/parameter_server.pb.h"
#include "ps/messages.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  fuzz::Bytes bytes(data, size);
  const std::string_view create = bytes.Piece(), content = bytes.Piece(), view = bytes.Piece();
  proto::CreateRequest request;
  if (!request.ParseFromArray(create.data(), static_cast<int>(create.size()))) return 0;
  absl::StatusOr<ps::ShardSpec> spec = ps::SpecOf(request, request.task());
  if (!spec.ok()) {
    // Any peer can compute the digest; a fuzzer cannot. The error names it: "and <digest> here".
    const std::string error(spec.status().message());
    const size_t at = error.find(" here: start all");
    if (at != std::string::npos && at >= 16) request.set_digest(error.substr(at - 16, 16));
    spec = ps::SpecOf(request, request.task());
  }
  if (!spec.ok()) return 0;
  size_t chunks = 0;
  for (const auto& of_server : spec->layout.chunks) {
    chunks += of_server.size();
    for (const push_pull::Chunk& chunk : of_server)
      fuzz::Require(chunk.begin >= 0 && chunk.begin <= chunk.end, "a chunk is a range");
  }
  fuzz::Require(chunks <= (1 << 24), "a layout has a bounded number of chunks");
  proto::ChunkContent message;
  if (message.ParseFromArray(content.data(), static_cast<int>(content.size())))
    (void)ps::StateOf(message, *spec);
  proto::View places;
  if (places.ParseFromArray(view.data(), static_cast<int>(view.size())))
    (void)ps::ViewOf(places, request.servers());
  return 0;
}
