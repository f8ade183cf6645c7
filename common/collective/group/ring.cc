#include "common/collective/group/ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace muster::collective {
namespace {

using transport::FrameHeader;
using transport::Interest;
using transport::WaitResult;

constexpr int64_t kChunk = 1 << 19;    // Bytes reduced at a time. They fit in the L2 cache.
constexpr int64_t kMaxRead = 1 << 20;  // Bytes received at a time without a reduction.
// Bytes sent at a time, so that sending does not delay receiving.
constexpr int64_t kMaxWrite = 1 << 19;
constexpr Duration kSpinFor = std::chrono::microseconds(50);

// One step of the ring. Bytes arrive from the left neighbour. The next step sends their result to
// the right neighbour.
struct Step {
  const std::byte* own = nullptr;  // Added to the arriving bytes. Null: these are the result.
  std::byte* out = nullptr;
  int64_t bytes = 0;
  bool last_sum = false;  // Apply the divisor.
};

// One operation around the ring.
class RingOperation {
 public:
  RingOperation(Links& links, const std::vector<int>& order, const Plan& plan,
                const Signature& signature, MonotonicTime deadline, bool spin,
                std::vector<std::byte>& incoming)
      : links_(links),
        order_(order),
        plan_(plan),
        signature_(signature),
        deadline_(deadline),
        started_(Clock::now()),
        spin_(spin),
        incoming_(incoming) {
    const int n = static_cast<int>(order.size());
    me_ = static_cast<int>(std::find(order.begin(), order.end(), links.rank()) - order.begin());
    left_ = order[(me_ + n - 1) % n];
    right_ = order[(me_ + 1) % n];
    look_at_ = started_ + Links::kCheckLinksEvery;
    present_at_ = started_ + std::min(Links::kAnnouncePresenceAfter, (deadline - started_) / 4);
  }

  absl::Status Run(std::vector<std::byte>& partial) {
    MUSTER_ASSIGN_OR_RETURN(from_left_, links_.Data(left_));
    MUSTER_ASSIGN_OR_RETURN(to_right_, links_.Data(right_));
    Prepare(partial);
    MonotonicTime idle_since{};
    while (sent_ < to_send_ || received_ < to_receive_ || !greeted_) {
      MUSTER_ASSIGN_OR_RETURN(const bool sent, Send());
      MUSTER_ASSIGN_OR_RETURN(const bool received, Receive());
      if (links_.abort().is_set()) return Superseded("aborted");
      if (sent || received) {
        idle_since = {};
        continue;
      }
      if (spin_) {
        const MonotonicTime now = Clock::now();
        if (idle_since == MonotonicTime{}) idle_since = now;
        if (now - idle_since < kSpinFor) continue;
      }
      MUSTER_RETURN_IF_ERROR(Wait());
    }
    return absl::OkStatus();
  }

 private:
  void Prepare(std::vector<std::byte>& partial) {
    const int n = static_cast<int>(order_.size());
    const int64_t element = SizeOf(plan_.type);
    auto index = [&](int back) { return ((me_ - back) % n + n) % n; };
    if (plan_.reduce) {
      int64_t scratch = 0;
      for (int s = 0; s + 2 < n && !plan_.gather; ++s) {
        scratch += plan_.parts[index(2 + s)].count * element;
      }
      if (scratch > static_cast<int64_t>(partial.size())) partial.resize(scratch);
      scratch = 0;
      for (int s = 0; s + 1 < n; ++s) {
        const RankPart& part = plan_.parts[index(2 + s)];
        const bool last = s + 2 == n;
        Step step{part.send, part.receive, part.count * element, last};
        if (!plan_.gather && !last) {
          step.out = partial.data() + scratch;
          scratch += step.bytes;
        }
        steps_.push_back(step);
      }
    }
    const RankPart& first = plan_.parts[plan_.reduce ? index(1) : me_];
    if (plan_.gather) {
      for (int s = 0; s + 1 < n; ++s) {
        const RankPart& part = plan_.parts[index(1 + s)];
        steps_.push_back({nullptr, part.receive, part.count * element, false});
      }
      const RankPart& mine = plan_.parts[me_];
      if (!plan_.reduce && mine.receive != mine.send && mine.count > 0) {
        std::memmove(mine.receive, mine.send, mine.count * element);
      }
    }
    for (const Step& step : steps_) to_receive_ += step.bytes;
    first_bytes_ = first.count * element;
    out_.push_back({const_cast<char*>(reinterpret_cast<const char*>(&header_)), sizeof header_});
    out_.push_back({const_cast<std::byte*>(first.send), static_cast<size_t>(first_bytes_)});
    for (size_t i = 0; i + 1 < steps_.size(); ++i) {
      out_.push_back({steps_[i].out, static_cast<size_t>(steps_[i].bytes)});
    }
    for (const iovec& i : out_) to_send_ += static_cast<int64_t>(i.iov_len);
    header_.kind = static_cast<uint16_t>(FrameKind::kOperation);
    header_.payload_bytes = to_send_ - sizeof header_;
    std::memcpy(header_.body, &signature_, sizeof signature_);
  }

  // Returns the number of bytes that can be sent now. The outgoing stream is the reduced incoming
  // stream, one step later.
  int64_t Available() const {
    return std::min<int64_t>(to_send_, sizeof header_ + first_bytes_ + received_) - sent_;
  }

  absl::StatusOr<bool> Send() {
    int64_t budget = std::min(Available(), kMaxWrite);
    if (budget <= 0) return false;
    iovec parts[8];
    int count = 0;
    size_t offset = out_offset_;
    for (size_t i = out_at_; i < out_.size() && budget > 0 && count < 8; ++i) {
      const size_t length = std::min<size_t>(out_[i].iov_len - offset, budget);
      if (length > 0) parts[count++] = {static_cast<char*>(out_[i].iov_base) + offset, length};
      budget -= static_cast<int64_t>(length);
      offset = 0;
    }
    absl::StatusOr<size_t> n = to_right_->TryWrite({parts, static_cast<size_t>(count)});
    if (!n.ok()) return Lost(right_, Message(n.status()));
    sent_ += static_cast<int64_t>(*n);
    out_offset_ += *n;
    while (out_at_ < out_.size() && out_offset_ >= out_[out_at_].iov_len) {
      out_offset_ -= out_[out_at_++].iov_len;
    }
    return *n > 0;
  }

  absl::StatusOr<bool> Receive() {
    if (!greeted_) {
      auto* into = reinterpret_cast<std::byte*>(&theirs_) + theirs_bytes_;
      MUSTER_ASSIGN_OR_RETURN(const int64_t n, Read(into, sizeof theirs_ - theirs_bytes_));
      theirs_bytes_ += n;
      greeted_ = theirs_bytes_ == sizeof theirs_;
      if (greeted_) MUSTER_RETURN_IF_ERROR(Compare());
      return n > 0;
    }
    while (at_ < steps_.size() && done_ == steps_[at_].bytes) ++at_, done_ = 0;
    if (at_ == steps_.size()) return false;
    const Step& step = steps_[at_];
    return step.own == nullptr ? ReceiveResult(step) : ReceiveAndReduce(step);
  }

  absl::StatusOr<bool> ReceiveResult(const Step& step) {
    const int64_t want = std::min(step.bytes - done_, kMaxRead);
    MUSTER_ASSIGN_OR_RETURN(const int64_t n, Read(step.out + done_, want));
    done_ += n;
    received_ += n;
    return n > 0;
  }

  absl::StatusOr<bool> ReceiveAndReduce(const Step& step) {
    const int64_t chunk = std::min(step.bytes - done_, kChunk);
    MUSTER_ASSIGN_OR_RETURN(const int64_t n, Read(incoming_.data() + filled_, chunk - filled_));
    filled_ += n;
    if (filled_ < chunk) return n > 0;
    Reduction reduction = plan_.reduction;
    if (!step.last_sum) reduction.divisor = 1;
    const void* sources[] = {incoming_.data(), step.own + done_};
    void* out = step.out + done_;
    ReduceElements({&out, 1}, sources, chunk / SizeOf(plan_.type), plan_.type, reduction);
    filled_ = 0;
    done_ += chunk;
    received_ += chunk;
    return true;
  }

  absl::StatusOr<int64_t> Read(std::byte* to, int64_t bytes) {
    const iovec into{to, static_cast<size_t>(bytes)};
    const absl::StatusOr<size_t> n = from_left_->TryRead({&into, 1});
    if (!n.ok()) return Lost(left_, Message(n.status()));
    return static_cast<int64_t>(*n);
  }

  absl::Status Compare() {
    if (theirs_.magic != FrameHeader::kMagic ||
        theirs_.kind != static_cast<uint16_t>(FrameKind::kOperation)) {
      return PeerLost(fmt::format("{} sent bytes that are no frame.", links_.Name(left_)));
    }
    Signature theirs;
    std::memcpy(&theirs, theirs_.body, sizeof theirs);
    links_.RecordPresence(left_, theirs.sequence);
    if (theirs != signature_) {
      const std::string mine = links_.Name(links_.rank()), other = links_.Name(left_);
      return links_.rank() < left_ ? MismatchError(mine, signature_, other, theirs)
                                   : MismatchError(other, theirs, mine, signature_);
    }
    if (theirs_.payload_bytes != static_cast<uint64_t>(to_receive_)) {
      return ProgramError(fmt::format("{} sends {} bytes for {}, {} were expected.",
                                      links_.Name(left_), theirs_.payload_bytes, theirs.Text(),
                                      to_receive_));
    }
    return absl::OkStatus();
  }

  absl::Status Lost(int rank, std::string_view why) const {
    return PeerLost(fmt::format("Lost the data connection to {}: {}.", links_.Name(rank), why));
  }

  absl::Status Wait() {
    const bool want_left = !greeted_ || received_ < to_receive_;
    const bool want_right = Available() > 0;
    Interest data[2] = {{from_left_, want_left, false}, {to_right_, false, want_right}};
    if (from_left_ == to_right_) data[0].write = want_right;
    const size_t count = from_left_ == to_right_ ? 1 : 2;
    const MonotonicTime until = std::min({present_at_, look_at_, deadline_});
    const Links::Ready ready = links_.Wait({data, count}, until);
    if (ready.result == WaitResult::kAborted) return Superseded("aborted");
    // Data comes before notices. A neighbour that has sent all data may already have left, if this
    // is its last operation.
    if (ready.data) return absl::OkStatus();
    if (ready.notices) MUSTER_RETURN_IF_ERROR(links_.ReadNotices());
    if (links_.Closed(right_) && sent_ < to_send_) {
      return Lost(right_, "the other side closed the connection");
    }
    if (ready.result == WaitResult::kDeadline) {
      if (until == look_at_ && until != deadline_) {
        look_at_ = until + Links::kCheckLinksEvery;
        return links_.CheckLinks(until);
      }
      if (until == deadline_) {
        MUSTER_RETURN_IF_ERROR(links_.ReadNotices());
        // Without a reduction, a rank that only forwards data may have finished. It then sends no
        // more notices.
        return links_.Late(signature_, want_left ? left_ : right_, plan_.reduce, started_);
      }
      links_.AnnouncePresence(signature_);
      present_at_ = MonotonicTime::max();
    }
    return absl::OkStatus();
  }

  Links& links_;
  const std::vector<int>& order_;
  const Plan& plan_;
  const Signature& signature_;
  const MonotonicTime deadline_, started_;
  const bool spin_;
  std::vector<std::byte>& incoming_;
  int me_ = 0, left_ = 0, right_ = 0;
  transport::DataConnection *from_left_ = nullptr, *to_right_ = nullptr;
  MonotonicTime present_at_, look_at_;

  FrameHeader header_, theirs_;
  int64_t theirs_bytes_ = 0;
  std::vector<Step> steps_;
  std::vector<iovec> out_;
  int64_t first_bytes_ = 0, to_send_ = 0, to_receive_ = 0;
  int64_t sent_ = 0, received_ = 0;  // Bytes. received_ only counts final results.
  size_t out_at_ = 0, out_offset_ = 0;
  bool greeted_ = false;  // True once the left neighbour's header was read.
  size_t at_ = 0;         // The step of the arriving bytes.
  int64_t done_ = 0;      // The number of finished bytes of that step.
  int64_t filled_ = 0;    // The number of received bytes in the chunk to be reduced.
};

class TcpEngine : public Engine {
 public:
  TcpEngine(std::unique_ptr<Links> links, bool spin)
      : links_(std::move(links)), ring_(links_.get(), spin) {}

  std::string Describe() const override {
    return fmt::format("TCP ring, {} ranks", links_->size());
  }

  absl::Status Run(const Operation& operation, MonotonicTime deadline) override {
    const Signature& s = operation.signature;
    absl::Status status = s.verb == Verb::kBarrier
                              ? RingBarrier(ring_, links_->topology().ring, s, deadline)
                              : RunAroundAll(ring_, *links_, operation, deadline);
    return absl::IsUnavailable(status) ? links_->Explain(status) : status;
  }
  void Wake(const absl::Status&) override { links_->abort().Set(); }
  void Close(const absl::Status& why) override { links_->Close(why); }

 private:
  const std::unique_ptr<Links> links_;
  Ring ring_;
};

}  // namespace

absl::Status Ring::Run(const std::vector<int>& order, const Plan& plan, const Signature& signature,
                       MonotonicTime deadline) {
  if (order.size() == 1) {
    const RankPart& mine = plan.parts[0];
    if (mine.count == 0) return absl::OkStatus();
    const void* from = mine.send;
    void* to = mine.receive;
    if (plan.reduce) {
      ReduceElements({&to, 1}, {&from, 1}, mine.count, plan.type, plan.reduction);
    } else if (from != to) {
      std::memmove(to, from, mine.count * SizeOf(plan.type));
    }
    return absl::OkStatus();
  }
  if (incoming_.empty()) incoming_.resize(kChunk);
  RingOperation operation(*links_, order, plan, signature, deadline, spin_, incoming_);
  return operation.Run(partial_);
}

absl::Status RunAroundAll(Ring& ring, const Links& links, const Operation& operation,
                          MonotonicTime deadline) {
  const std::vector<int>& order = links.topology().ring;
  Plan plan = MakePlan(operation, links.rank(), links.size(), links.size());
  std::vector<RankPart> by_rank = std::exchange(plan.parts, {});
  for (const int rank : order) plan.parts.push_back(by_rank[rank]);
  return ring.Run(order, plan, operation.signature, deadline);
}

absl::Status RingBarrier(Ring& ring, const std::vector<int>& order, const Signature& signature,
                         MonotonicTime deadline) {
  // The sum over all ranks is only known once all ranks have joined.
  int64_t token = 1;
  const int n = static_cast<int>(order.size());
  const Plan plan = MakeInPlacePlan({&token, 1, DataType::kInt64}, n, n, {}, true, true);
  return ring.Run(order, plan, signature, deadline);
}

std::unique_ptr<Engine> MakeTcpEngine(std::unique_ptr<Links> links, bool spin) {
  return std::make_unique<TcpEngine>(std::move(links), spin);
}

}  // namespace muster::collective
