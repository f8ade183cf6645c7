// Data that a LeaseClient (lease_client.h) stores for its reports to the chief. A lease is the
// assignment of one batch to a worker. Not thread-safe: the LeaseClient's lock guards these
// objects.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/push_pull/variable_messages.h"
#include "common/train/shown.h"
#include "proto/parameter_server.pb.h"

namespace muster::worker {

// Decides how many batches a worker leases and reports together: as many as the worker computes in
// the time kTogether, but at least 1 and at most kMax. The number is small for two reasons. A
// checkpoint, for example, waits for all batches that workers hold. If the worker is lost, other
// workers must repeat these batches.
class BatchPace {
 public:
  static constexpr Duration kTogether = std::chrono::milliseconds(100);
  static constexpr int kMax = 16;

  // Called when a batch is completed.
  void Completed(MonotonicTime now) {
    if (last_ != MonotonicTime()) each_ += (now - last_ - each_) / 4;
    last_ = now;
  }
  int together() const {
    return std::clamp(static_cast<int>(kTogether / std::max(each_, Duration(1))), 1, kMax);
  }

 private:
  Duration each_ = kTogether;  // Mean time of recent batches.
  MonotonicTime last_;         // The time of the last call of Completed.
};

// Keeps the completed batches of the last 30 seconds, to report them again to a new chief, whose
// record may be a second old. Of the batches that a chief has heard of, keeps at most 4 MiB.
class RecentBatches {
 public:
  static constexpr Duration kKept = std::chrono::seconds(30);
  static constexpr size_t kMost = 4096, kMostBytes = 4 << 20;

  void Add(MonotonicTime now, const proto::BatchDone& done) {
    batches_.push_back({now, done.ByteSizeLong(), false, done});
    bytes_ += batches_.back().bytes;
  }
  // Called when a chief has received the request.
  void Heard(const proto::NextRequest& request) {
    for (const proto::BatchDone& done : request.done())
      for (auto batch = batches_.rbegin(); batch != batches_.rend(); ++batch)
        if (batch->done.lease() == done.lease()) {
          batch->heard = true;
          break;
        }
  }
  // Drops the batches that exceed the limits and returns their leases. Never drops a batch that no
  // chief has heard of, nor a later one.
  std::vector<int64_t> Drop(MonotonicTime now) {
    std::vector<int64_t> dropped;
    while (!batches_.empty() && batches_.front().heard &&
           (batches_.size() >= kMost || bytes_ > kMostBytes || now - batches_.front().at > kKept)) {
      dropped.push_back(batches_.front().done.lease());
      bytes_ -= batches_.front().bytes;
      batches_.pop_front();
    }
    return dropped;
  }
  std::vector<proto::BatchDone> all() const {
    std::vector<proto::BatchDone> all;
    for (const Batch& batch : batches_) all.push_back(batch.done);
    return all;
  }

 private:
  struct Batch {
    MonotonicTime at;
    size_t bytes = 0;
    bool heard = false;  // True if a chief has received the report.
    proto::BatchDone done;
  };
  std::deque<Batch> batches_;  // In the order of completion.
  size_t bytes_ = 0;
};

// Keeps the images and histograms that the program has shown, until the chief has received them.
// Each entry belongs to a lease. While all entries together exceed kMaxShownBytes, drops the entry
// with the lowest lease id. Never drops the only remaining entry. The LeaseClient stores BatchDone
// messages without these entries. The LeaseClient sends stored messages again to a new chief. If a
// chief has received an entry, the LeaseClient does not send the entry again.
class ShownBatches {
 public:
  void Keep(int64_t lease, proto::Shown shown) {
    shown_[lease] = std::move(shown);
    size_t bytes = 0;
    for (const auto& [id, kept] : shown_) bytes += kept.ByteSizeLong();
    while (bytes > kMaxShownBytes && shown_.size() > 1) {
      bytes -= shown_.begin()->second.ByteSizeLong();
      shown_.erase(shown_.begin());
    }
  }
  void Forget(int64_t lease) { shown_.erase(lease); }
  void AddTo(proto::BatchDone* done) const {
    const auto found = shown_.find(done->lease());
    if (found != shown_.end()) *done->mutable_shown() = found->second;
  }

 private:
  std::map<int64_t, proto::Shown> shown_;
};

// Keeps the values of the integer buffers that this process has changed, and whether the chief has
// received these values.
class ChangedIntegers {
 public:
  void Change(const push_pull::IntegerBuffers& changed, uint64_t sequence) {
    for (const auto& [name, value] : changed) integers_[name] = {value, sequence, false};
    sequence_ = sequence;
  }
  // Adds values to a request. If `all` is true, adds all values. If not, adds only the values that
  // the chief has not received.
  void AddTo(bool all, proto::NextRequest* request) const {
    for (const auto& [name, integer] : integers_)
      if (all || !integer.acknowledged) (*request->mutable_buffers())[name] = integer.value;
    request->set_buffers_sequence(sequence_);
  }
  // Called when the chief has received the request.
  void Arrived(const proto::NextRequest& request) {
    for (const auto& [name, value] : request.buffers()) {
      Integer& integer = integers_[name];
      integer.acknowledged = integer.acknowledged || integer.sequence <= request.buffers_sequence();
    }
  }

 private:
  struct Integer {
    std::string value;
    uint64_t sequence = 0;
    bool acknowledged = false;
  };
  std::map<std::string, Integer> integers_;
  uint64_t sequence_ = 0;
};

}  // namespace muster::worker
