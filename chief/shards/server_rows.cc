#include "chief/shards/server_rows.h"

#include <algorithm>

#include "common/rpc/channel.h"

namespace muster::chief {
namespace {

constexpr size_t kMaxAnswerElements = 1 << 20;                       // Limit of one reply.
constexpr size_t kMaxKeys = rpc::kMaxPieceBytes / sizeof(uint64_t);  // Limit of one request.

}  // namespace

absl::Status ServerRows::Pull(std::span<const RowRead> reads) {
  for (const RowRead& read : reads) MUSTER_RETURN_IF_ERROR(PullOne(read));
  return absl::OkStatus();
}

absl::Status ServerRows::PullOne(const RowRead& read) {
  const ServedTable& served = tables_[read.table];
  const auto width = static_cast<size_t>(served.options.width);
  const size_t most = std::clamp<size_t>(kMaxAnswerElements / width, 1, kMaxKeys);
  // Positions in `keys`, indexed by server.
  std::vector<std::vector<size_t>> places(static_cast<size_t>(servers_));
  for (size_t i = 0; i < read.keys.size(); ++i)
    places[push_pull::PlaceOfRow(read.keys[i], servers_).server].push_back(i);
  for (int server = 0; server < servers_; ++server) {
    for (size_t begin = 0; begin < places[server].size(); begin += most) {
      const auto some = std::span(places[server])
                            .subspan(begin)
                            .first(std::min(most, places[server].size() - begin));
      std::vector<uint64_t> asked;
      for (const size_t i : some) asked.push_back(read.keys[i]);
      std::vector<float> came(asked.size() * width);
      MUSTER_RETURN_IF_ERROR(PullFrom(server, served.variable, asked, came));
      for (size_t k = 0; k < some.size(); ++k)
        std::copy_n(came.data() + k * width, width, read.rows.data() + some[k] * width);
    }
  }
  return absl::OkStatus();
}

absl::Status ServerRows::PullFrom(int server, int variable, std::span<const uint64_t> keys,
                                  std::span<float> rows) {
  const MonotonicTime deadline = Clock::now() + patience_;
  for (bool again = false;; again = true) {
    absl::Status pulled;
    if (const auto client = primary_(server, again); client.ok()) {
      pulled = (*client)->PullRows(variable, keys, rows);
    } else {
      pulled = client.status();
    }
    const bool retry = ShardClient::MayRetry(pulled) || ExitCodeOf(pulled) == ExitCode::kRetryable;
    if (pulled.ok() || !retry || Clock::now() >= deadline) return pulled;
  }
}

absl::Status ServerRows::Push(int64_t, std::span<const RowGradients>) {
  return ProgramError("the chief of parameter servers trains no rows: workers do");
}

}  // namespace muster::chief
