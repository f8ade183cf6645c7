// Tests failures of a store: the machine stops, the disk is full or fails, or another owner takes
// over, before each single operation on the file system.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <memory>
#include <set>

#include "common/checkpoint/store.h"
#include "tests/unit/checkpoint/memory_file_system.h"
#include "tests/unit/checkpoint/snapshots.h"

namespace muster::checkpoint {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::Difference;
using testing_support::MakeSnapshot;
using Crash = MemoryFileSystem::Crash;
using Operation = MemoryFileSystem::Operation;

constexpr char kFolder[] = "/disk/model/checkpoints";

std::unique_ptr<MemoryFileSystem> NewDisk() {
  auto files = std::make_unique<MemoryFileSystem>();
  EXPECT_TRUE(MakeDirectories(*files, "/disk").ok());
  return files;
}

absl::StatusOr<std::unique_ptr<Store>> OpenStore(FileSystem& files, const std::string& token,
                                                 int64_t restored) {
  return Store::Open(files, {kFolder, token, /*keep=*/2, {}}, restored);
}

// The steps whose save, and whose mark as the best, a run saw succeed.
struct Confirmed {
  int64_t saved = -1;
  int64_t best = -1;
};

// Two owners, one after the other, that save, delete, and mark the best.
Confirmed Run(FileSystem& files) {
  Confirmed confirmed;
  int64_t step = 0;
  for (const char* token : {"first", "second"}) {
    const auto store = OpenStore(files, token, confirmed.saved);
    if (!store.ok()) return confirmed;
    for (int i = 0; i < 3; ++i) {
      step += 10;
      if (!(*store)->Write(MakeSnapshot(step)).ok()) return confirmed;
      confirmed.saved = step;
      if (step == 20 && (*store)->MarkBest(step, "loss", 0.5, false).value_or(false)) {
        confirmed.best = step;
      }
    }
  }
  return confirmed;
}

// The newest checkpoint is whole and not older than the last confirmed one, and no visible
// checkpoint is damaged.
void ExpectWhole(FileSystem& files, const Confirmed& confirmed) {
  std::vector<std::string> damaged;
  const auto newest = ReadNewest(files, "/disk/model", &damaged);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_THAT(damaged, IsEmpty());
  const int64_t step = *newest ? (*newest)->state.step : -1;
  ASSERT_GE(step, confirmed.saved);
  if (*newest) {
    ASSERT_EQ(Difference(**newest, MakeSnapshot(step)), "");
  }
  const auto infos = ListCheckpoints(files, kFolder, /*verify=*/true);
  ASSERT_TRUE(infos.ok()) << infos.status();
  std::set<int64_t> steps;
  for (const CheckpointInfo& info : *infos) {
    EXPECT_TRUE(info.health.ok()) << info.health;
    steps.insert(info.step);
  }
  EXPECT_TRUE(confirmed.best < 0 || steps.contains(confirmed.best));
  const std::optional<int64_t> latest = ReadLatest(files, kFolder);
  EXPECT_TRUE(!latest || steps.contains(*latest));
  EXPECT_EQ(files.Exists(std::string(kFolder) + "/latest").value(), latest.has_value());
}

// The next owner saves, and leaves only the checkpoints that are kept.
void ExpectNextOwnerSaves(FileSystem& files, const Confirmed& confirmed) {
  std::vector<std::string> damaged;
  const auto newest = ReadNewest(files, "/disk/model", &damaged);
  const int64_t restored = newest.ok() && *newest ? (*newest)->state.step : -1;
  auto store = OpenStore(files, "next", restored);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE(restored < 0 || ReadLatest(files, kFolder) == restored);
  for (const int64_t step : {1000, 1010}) {
    const auto path = (*store)->Write(MakeSnapshot(step));
    ASSERT_TRUE(path.ok()) << path.status();
  }
  std::vector<int64_t> kept = (*store)->steps();
  if (ReadBest(files, kFolder)) kept.erase(kept.begin());
  EXPECT_EQ(kept, (std::vector<int64_t>{1000, 1010}));
  EXPECT_TRUE(confirmed.best < 0 || ReadBest(files, kFolder)->step == confirmed.best);
  EXPECT_EQ(ReadLatest(files, kFolder), 1010);
  EXPECT_THAT(files.List(std::string(kFolder) + "/.staging/next").value(), IsEmpty());
  store->reset();
  EXPECT_THAT(files.List(std::string(kFolder) + "/.staging").value(), IsEmpty());
}

int64_t OperationsOfARun() {
  const auto files = NewDisk();
  const int64_t before = files->operations();
  EXPECT_EQ(Run(*files).saved, 60);
  return files->operations() - before;
}

void CrashBefore(int64_t operation, Crash crash, uint32_t seed) {
  SCOPED_TRACE(fmt::format("crash before operation {}, kind {}, seed {}", operation,
                           static_cast<int>(crash), seed));
  const auto files = NewDisk();
  const int64_t at = files->operations() + operation;
  files->SetBefore([at](const Operation& now) {
    return now.number < at ? absl::OkStatus() : absl::InternalError("the machine has stopped");
  });
  const Confirmed confirmed = Run(*files);
  files->CrashNow(crash, seed);
  files->SetBefore({});
  ExpectWhole(*files, confirmed);
  ExpectNextOwnerSaves(*files, confirmed);
}

TEST(StoreCrash, BeforeEveryOperation) {
  const int64_t operations = OperationsOfARun();
  EXPECT_GT(operations, 200);
  for (int64_t k = 0; k <= operations && !testing::Test::HasFailure(); ++k) {
    CrashBefore(k, Crash::kSyncedOnly, 0);
    CrashBefore(k, Crash::kAll, 0);
  }
}

TEST(StoreCrash, WithAnyPartOfTheRestOnTheDisk) {
  const int64_t operations = OperationsOfARun();
  std::mt19937 random(200);
  for (int round = 0; round < 600 && !testing::Test::HasFailure(); ++round) {
    CrashBefore(static_cast<int64_t>(random() % operations), Crash::kRandom, random());
  }
}

// A store with steps 10 and 20 (the best: 10), that is to write 30 while operations fail.
struct Failing {
  std::unique_ptr<MemoryFileSystem> files = NewDisk();
  std::unique_ptr<Store> store;
  int64_t begin = 0;

  Failing() {
    store = OpenStore(*files, "owner", -1).value();
    EXPECT_TRUE(store->Write(MakeSnapshot(10)).ok());
    EXPECT_TRUE(store->Write(MakeSnapshot(20)).ok());
    EXPECT_TRUE(store->Write(MakeSnapshot(25)).ok());
    begin = files->operations();
  }
};

// Operations that `fails` chooses fail from the k-th of Write on. False: none was left to fail.
bool SurvivesFrom(int64_t k, bool machine_stops, const absl::Status& error,
                  bool (*fails)(const Operation&), int* failed) {
  Failing now;
  bool reached = false;
  now.files->SetBefore([&, at = now.begin + k](const Operation& operation) {
    if (operation.number < at || !fails(operation)) return absl::OkStatus();
    reached = true;
    return error;
  });
  const auto path = now.store->Write(MakeSnapshot(30));
  now.files->SetBefore({});
  if (!path.ok()) {
    ++*failed;
    EXPECT_EQ(path.status().code(), error.code());
    EXPECT_THAT(
        path.status().ToString(),
        AnyOf(HasSubstr("could not save checkpoint step-00000030: "),
              HasSubstr("checkpoint step-00000030 is there, but could not be made to last")));
    EXPECT_THAT(path.status().ToString(), HasSubstr(Message(error)));
  }
  if (machine_stops) now.files->CrashNow(Crash::kSyncedOnly, 0);
  ExpectWhole(*now.files, Confirmed{path.ok() ? 30 : 25, -1});
  if (machine_stops) return reached;
  // There is space again.
  const auto later = now.store->Write(MakeSnapshot(40));
  EXPECT_TRUE(later.ok()) << later.status();
  ExpectWhole(*now.files, Confirmed{40, -1});
  EXPECT_EQ(now.store->steps().size(), 2u);
  EXPECT_THAT(now.files->List(std::string(kFolder) + "/.staging/owner").value(), IsEmpty());
  return reached;
}

void ExpectSurvives(const absl::Status& error, bool (*fails)(const Operation&)) {
  int failed = 0;
  for (const bool machine_stops : {false, true}) {
    bool reached = true;
    for (int64_t k = 0; reached && !testing::Test::HasFailure(); ++k) {
      SCOPED_TRACE(fmt::format("from operation {} on: {}", k, error.ToString()));
      reached = SurvivesFrom(k, machine_stops, error, fails, &failed);
    }
  }
  EXPECT_GT(failed, 30);
}

TEST(StoreFailure, NoSpaceFromEveryOperationOn) {
  ExpectSurvives(
      absl::ResourceExhaustedError("No space left on device"),
      [](const Operation& operation) { return operation.changes && operation.name != "Remove"; });
}

TEST(StoreFailure, ReadOnlyFromEveryOperationOn) {
  ExpectSurvives(absl::PermissionDeniedError("Read-only file system"),
                 [](const Operation& operation) { return operation.changes; });
}

TEST(StoreFailure, NothingWorksFromEveryOperationOn) {
  ExpectSurvives(absl::InternalError("Input/output error"), [](const Operation&) { return true; });
}

// Each operation in turn fails once: the step is there, as it was or as it is to be.
TEST(StoreFailure, AnEndThatCannotTakeItsPlaceLeavesTheOneBefore) {
  Snapshot end = MakeSnapshot(30);
  end.state.step = 20;
  end.replaces = true;
  for (int64_t operation = 0;; ++operation) {
    SCOPED_TRACE(fmt::format("operation {} fails", operation));
    const auto files = NewDisk();
    const auto store = OpenStore(*files, "first", -1).value();
    for (const int64_t step : {10, 20}) ASSERT_TRUE(store->Write(MakeSnapshot(step)).ok());
    const int64_t at = files->operations() + operation;
    bool failed = false;
    files->SetBefore([&](const Operation& now) {
      if (now.number != at) return absl::OkStatus();
      failed = true;
      return absl::InternalError("no luck");
    });
    const bool written = store->Write(end).ok();
    files->SetBefore({});
    const auto there = ReadCheckpoint(*files, std::string(kFolder) + "/step-00000020");
    ASSERT_TRUE(there.ok()) << there.status();
    EXPECT_TRUE(Difference(*there, end).empty() ||
                (!written && Difference(*there, MakeSnapshot(20)).empty()));
    EXPECT_EQ(store->steps(), (std::vector<int64_t>{10, 20}));
    ASSERT_TRUE(store->Write(end).ok()) << "the next try";
    if (!failed) break;
  }
}

TEST(StoreFailure, AFullDiskIsCleanedUp) {
  for (int64_t room = 0; room < 3000; room += 101) {
    Failing now;
    int64_t used = 0;
    const auto infos = ListCheckpoints(*now.files, kFolder, false);
    for (const CheckpointInfo& info : *infos) {
      used += info.bytes;
    }
    now.files->SetCapacity(used + 1500 + room);  // manifests and marks take some, too
    const auto path = now.store->Write(MakeSnapshot(30));
    ExpectWhole(*now.files, Confirmed{path.ok() ? 30 : 25, -1});
    EXPECT_THAT(now.files->List(std::string(kFolder) + "/.staging/owner").value(), IsEmpty());
    if (path.ok()) continue;
    EXPECT_TRUE(absl::IsResourceExhausted(path.status()));
    EXPECT_EQ(now.store->steps(), (std::vector<int64_t>{20, 25}));
    now.files->SetCapacity(1 << 20);
    EXPECT_TRUE(now.store->Write(MakeSnapshot(30)).ok());
  }
}

// All that is not under .staging.
std::map<std::string, std::string> Published(FileSystem& files, const std::string& folder) {
  std::map<std::string, std::string> all;
  const std::vector<std::string> names = files.List(folder).value();
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    if (name == ".staging") continue;
    if (const auto bytes = ReadFile(files, path); bytes.ok()) {
      all[path] = *bytes;
    } else {
      all[path] = "/";
      all.merge(Published(files, path));
    }
  }
  return all;
}

struct TakeOver {
  std::unique_ptr<MemoryFileSystem> files = NewDisk();
  bool armed = false, done = false;
  // Like the chief's Owner::Check.
  absl::Status Fence() const { return done ? Superseded("taken over") : absl::OkStatus(); }
};

// Owner "old" does `act`. Before the k-th operation after it sets `armed`, for every k, owner "new"
// takes over, restores and saves. After that, nothing of old's is visible, and new can continue.
void TakeOverEverywhere(const std::function<void(TakeOver& now)>& act) {
  int64_t k = 0;
  for (bool reached = true; reached && !testing::Test::HasFailure(); ++k) {
    SCOPED_TRACE(fmt::format("taken over before operation {}", k));
    TakeOver now;
    MemoryFileSystem& files = *now.files;
    {
      const auto store = OpenStore(files, "before", -1).value();
      for (const int64_t step : {10, 20}) ASSERT_TRUE(store->Write(MakeSnapshot(step)).ok());
    }
    std::unique_ptr<Store> next;
    std::map<std::string, std::string> published;
    int64_t left = k;
    files.SetBefore([&](const Operation&) {
      if (!now.armed || now.done || left-- > 0) return absl::OkStatus();
      now.done = true;
      EXPECT_TRUE(RemoveStaging(files, kFolder, {}).ok());
      std::vector<std::string> damaged;
      const auto newest = ReadNewest(files, kFolder, &damaged);
      EXPECT_TRUE(newest.ok() && *newest && damaged.empty());
      next = OpenStore(files, "new", (*newest)->state.step).value();
      EXPECT_TRUE(next->Write(MakeSnapshot(500)).ok());
      published = Published(files, kFolder);
      return absl::OkStatus();
    });
    act(now);
    files.SetBefore({});
    reached = now.done;
    if (!reached) break;
    EXPECT_EQ(Published(files, kFolder), published);
    EXPECT_TRUE(next->Write(MakeSnapshot(510)).ok());
    ExpectWhole(files, Confirmed{510, -1});
  }
  EXPECT_GT(k, 40);
}

void SaveAsOld(TakeOver& now, Store& store) {
  for (const int64_t step : {30, 40}) {
    const bool before = now.done;
    const absl::Status status = store.Write(MakeSnapshot(step)).status();
    EXPECT_TRUE(!before || absl::IsAborted(status)) << status;
    (void)store.MarkBest(step, "loss", 1.0 / static_cast<double>(step), false);
  }
}

TEST(StoreSuperseded, PublishesNothing) {
  TakeOverEverywhere([](TakeOver& now) {
    now.armed = true;
    const auto store =
        Store::Open(*now.files, {kFolder, "old", 2, [&now] { return now.Fence(); }}, 20);
    if (store.ok()) SaveAsOld(now, **store);
  });
}

// The folder alone is enough, once the store is open.
TEST(StoreSuperseded, PublishesNothingEvenWithoutAFence) {
  TakeOverEverywhere([](TakeOver& now) {
    const auto store = OpenStore(*now.files, "old", 20).value();
    now.armed = true;
    SaveAsOld(now, *store);
  });
}

}  // namespace
}  // namespace muster::checkpoint
