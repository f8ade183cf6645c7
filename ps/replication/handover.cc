#include "ps/replication/handover.h"

#include <algorithm>
#include <string>

namespace muster::ps {
namespace {

// Elements of a piece of rows, 4 MiB.
constexpr int64_t kPieceElements = 1 << 20;

absl::StatusOr<uint64_t> SendState(ReplicaLink& link, const ReplicaFrame& frame,
                                   const ChunkState& state, Duration limit) {
  const std::string bytes = EncodeState(state);
  return link.Send(ReplicaKind::kState, frame, {std::as_bytes(std::span(bytes))}, limit);
}

}  // namespace

absl::StatusOr<Handover> Handover::Of(const ShardStore& store, int chunk) {
  Handover handover;
  handover.frame_.chunk = static_cast<uint32_t>(chunk);
  handover.columns_ = store.columns(chunk);
  if (handover.columns_.empty()) {
    MUSTER_ASSIGN_OR_RETURN(handover.state_, store.Copy(chunk));
    return handover;
  }
  MUSTER_ASSIGN_OR_RETURN(handover.rows_, store.Freeze(chunk));
  handover.state_.updates = handover.rows_.updates;
  handover.state_.last = handover.rows_.last;
  handover.state_.counted = handover.rows_.counted;
  return handover;
}

size_t Handover::bytes() const {
  if (columns_.empty()) return state_.parameters.size() * (1 + state_.slots.size()) * sizeof(float);
  int64_t elements = 0;
  for (const push_pull::RowColumn& column : columns_) elements += column.elements;
  return static_cast<size_t>(elements * rows_.rows->size()) * sizeof(float);
}

absl::StatusOr<uint64_t> Handover::Send(ReplicaLink& link, Duration limit,
                                        const std::atomic<bool>& closed) const {
  if (columns_.empty()) return SendState(link, frame_, state_, limit);
  int64_t elements = 2;
  for (const push_pull::RowColumn& column : columns_) elements += column.elements;
  const int64_t most = std::max<int64_t>(1, kPieceElements / elements);
  const int64_t rows = rows_.rows->size();
  for (int64_t first = 0;; first += most) {
    const int64_t count = std::min(most, rows - first);
    ChunkState piece = RowsOf(*rows_.rows, columns_, first, count);
    piece.updates = state_.updates;
    piece.last = state_.last;
    ReplicaFrame frame = frame_;
    frame.more = first + count < rows;
    if (!frame.more) piece.counted = state_.counted;
    if (closed) return Superseded("the view has changed");
    MUSTER_ASSIGN_OR_RETURN(const uint64_t sent, SendState(link, frame, piece, limit));
    if (!frame.more) return sent;
  }
}

}  // namespace muster::ps
