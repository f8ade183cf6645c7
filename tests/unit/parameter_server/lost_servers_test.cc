// A chief loses and regains servers in any order. It continues with every acknowledged update, as
// long as a process that has the update lives.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "chief/shards/shard_servers.h"

namespace muster::chief {
namespace {

constexpr int kServers = 3;
constexpr Duration kLongAway = std::chrono::hours(1);  // nobody waits in vain for so long

// A model of a ps task: its views, and its shards as primary and backup.
struct Process {
  uint64_t incarnation = 0;
  bool reached = true;          // by the chief
  std::map<int, int64_t> held;  // by shard: updates
  proto::View view;
  std::map<int, bool> strict;  // by shard of which it is primary: its backup counts
  std::set<int> synced;        // of which it is backup: its primary has said so

  const proto::ShardPlace* PlaceOf(int shard) const {
    return view.shards_size() > shard ? &view.shards(shard) : nullptr;
  }
  void SetView(int task, const proto::View& next) {
    view = next;
    strict.clear();
    synced.clear();
    for (int s = 0; s < kServers; ++s) {
      const proto::ShardPlace& place = view.shards(s);
      const bool keeps = place.primary() == task || place.primary() < 0 ||
                         (place.backup() == task && place.backup_in_sync());
      if (!keeps) held.erase(s);
      if (place.primary() == task) strict[s] = place.backup_in_sync();
    }
  }
  std::vector<int> Serving(int task) const {
    std::vector<int> serving;
    for (const auto& [s, updates] : held) {
      const proto::ShardPlace* place = PlaceOf(s);
      if (place == nullptr || place->backup() != task || place->backup_in_sync() ||
          synced.contains(s))
        serving.push_back(s);
    }
    return serving;
  }
};

class Cluster {
 public:
  // `kills`: processes end, too.
  Cluster(int seed, int copies, bool kills)
      : random_(seed), kills_(kills), servers_(kServers), processes_(kServers) {
    servers_.SetCopies(copies);
    servers_.SetPatience(std::chrono::seconds(10), kLongAway);
    for (int task = 0; task < kServers; ++task) Replace(task);
    for (int task = 0; task < kServers; ++task) Join(task);
    Restore();
    EXPECT_EQ(restored_, kServers);
  }

  void Run(int events) {
    for (int i = 0; i < events; ++i) {
      const int task = Draw(kServers);
      now_ += std::chrono::milliseconds(500);
      switch (Draw(kills_ ? 9 : 8)) {
        case 0:
          processes_[task].reached = Draw(2) == 0;
          break;
        case 1:
          Notice(task);
          break;
        case 2:
          Join(task);
          break;
        case 3:
        case 4:
          Deliver(task);
          break;
        case 5:
          Sync(Draw(kServers));
          break;
        case 6:
          for (int s = 0; s < kServers; ++s) Push(s);
          break;
        case 7:
          Restore();
          break;
        case 8:
          if (Draw(8) == 0) Replace(task);
      }
      if (servers_.view().number() != 0 && servers_.all_have_view())
        workers_view_ = servers_.view();
      Check();
    }
  }
  // All is well in the end.
  void Settle() {
    for (int round = 0; round < 20; ++round) {
      for (int task = 0; task < kServers; ++task) {
        processes_[task].reached = true;
        Notice(task);
        Join(task);
        now_ += std::chrono::seconds(1);
        for (int i = 0; i < 4; ++i) Deliver(task, /*heard=*/true);
      }
      Restore();
      workers_view_ = servers_.view();
      Check();
    }
    EXPECT_TRUE(servers_.Settled());
  }
  int restored() const { return restored_ - kServers; }

 private:
  int Draw(int of) { return static_cast<int>(random_() % of); }

  // The process has ended, and another one is started.
  void Replace(int task) {
    Process& process = processes_[task];
    if (process.incarnation != 0 && Draw(2) == 0) servers_.Ended(task, process.incarnation);
    process = Process();
    process.incarnation = ++incarnations_;
  }
  bool IsMember(int task) const {
    return servers_.member(task).incarnation == processes_[task].incarnation;
  }
  void Notice(int task) {
    if (servers_.member(task).incarnation == 0 || (processes_[task].reached && IsMember(task)))
      return;
    if (servers_.Lose(task, "a test", now_)) NewView();
  }
  void Join(int task) {
    const Process& process = processes_[task];
    if (servers_.member(task).incarnation != 0 || !process.reached) return;
    AdmittedMember member;
    member.task = {TaskType::kPs, task};
    member.incarnation = process.incarnation;
    servers_.Admit(member);
    proto::CreateReply reply;
    for (const int shard : process.Serving(task)) reply.add_serving(shard);
    if (servers_.Created(task, reply)) NewView();
  }
  void NewView() {
    servers_.NewView(++views_, "ticket", nullptr);
    servers_.SetRecord(std::to_string(views_), 0);
  }
  // The next call of the chief; its answer may be lost.
  void Deliver(int task, bool heard = false) {
    if (!processes_[task].reached || !IsMember(task)) return;
    const ServerCall call = servers_.NextCall(task, now_);
    if (call.kind == ServerCall::Kind::kSetView && call.version != processes_[task].view.number())
      processes_[task].SetView(task, call.view);
    if (call.kind == ServerCall::Kind::kNone || (!heard && Draw(4) == 0)) return;
    servers_.Succeeded(task, call, now_);
    if (call.kind != ServerCall::Kind::kBeat) return;
    proto::BeatReply reply;
    reply.set_view(processes_[task].view.number());
    for (const int shard : processes_[task].Serving(task)) reply.add_serving(shard);
    for (const auto& [shard, strict] : processes_[task].strict)
      if (strict) reply.add_synced(shard);
    if (servers_.HandleBeat(task, reply) == ShardServers::Change::kView) NewView();
  }
  // A primary brings its backup up to date; the chief hears of it with the next beat.
  void Sync(int shard) {
    for (int task = 0; task < kServers; ++task) {
      Process& primary = processes_[task];
      const proto::ShardPlace* place = primary.PlaceOf(shard);
      if (place == nullptr || place->primary() != task || !primary.held.contains(shard)) continue;
      if (place->backup() < 0) continue;
      Process& backup = processes_[place->backup()];
      if (backup.view.number() != primary.view.number()) continue;
      backup.held[shard] = primary.held[shard];
      primary.strict[shard] = true;
      backup.synced.insert(shard);
    }
  }
  // Pushes by the last view that workers have received.
  void Push(int shard) {
    if (workers_view_.shards_size() == 0) return;
    const proto::ShardPlace& place = workers_view_.shards(shard);
    if (place.primary() < 0) return;
    Process& primary = processes_[place.primary()];
    if (primary.view.number() != workers_view_.number() || !primary.held.contains(shard)) return;
    ++primary.held[shard];
    if (primary.strict[shard]) {
      Process& backup = processes_[place.backup()];
      if (backup.view.number() != workers_view_.number()) return;  // not acknowledged
      backup.held[shard] = primary.held[shard];
    }
    acknowledged_[shard] = primary.held[shard];
  }
  void Restore() {
    if (!servers_.all_have_view()) return;
    const auto targets = servers_.TakeUnserved(now_);
    for (const auto& [shard, task] : targets) {
      if (servers_.placements()[shard].primary < 0 && filled_.insert(shard).second) ++restored_;
      processes_[task].held[shard] = 0;
      acknowledged_[shard] = 0;
    }
    filled_.clear();
    if (targets.empty()) return;
    servers_.Restored(targets);
    NewView();
  }
  void Check() {
    if (servers_.view().number() == 0 || !servers_.all_have_view()) return;
    for (int s = 0; s < kServers; ++s) {
      const ShardPlacement& place = servers_.placements()[s];
      for (const int task : {place.primary, place.in_sync ? place.backup : -1}) {
        if (task < 0 || !IsMember(task)) continue;
        ASSERT_TRUE(processes_[task].held.contains(s)) << "shard " << s << ", ps " << task;
        EXPECT_GE(processes_[task].held[s], acknowledged_[s]) << "shard " << s << ", ps " << task;
      }
    }
  }

  std::mt19937 random_;
  const bool kills_;
  ShardServers servers_;
  std::vector<Process> processes_;  // by task
  std::map<int, int64_t> acknowledged_;
  std::set<int> filled_;
  proto::View workers_view_;
  MonotonicTime now_ = Clock::now();
  uint64_t incarnations_ = 0, views_ = 0;
  int restored_ = 0;
};

TEST(LostServers, TheChiefContinuesWithEverythingThatWasAcknowledged) {
  int restored = 0;
  for (int seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Cluster cluster(seed, 1 + seed % 2, /*kills=*/true);
    cluster.Run(400);
    cluster.Settle();
    restored += cluster.restored();
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(restored, 100) << "shards whose processes have all ended";
}

TEST(LostServers, NothingIsRestoredWhereNoProcessEnds) {
  for (int seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Cluster cluster(seed, 1 + seed % 2, /*kills=*/false);
    cluster.Run(400);
    cluster.Settle();
    EXPECT_EQ(cluster.restored(), 0);
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace muster::chief
