// Tests a store without failures, over both file systems, and the errors of readers about damage.
#include "common/checkpoint/store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <thread>

#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors.h"
#include "tests/unit/checkpoint/file_systems.h"
#include "tests/unit/checkpoint/memory_file_system.h"
#include "tests/unit/checkpoint/snapshots.h"

namespace muster::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::Difference;
using testing_support::MakeSnapshot;

class StoreContract : public testing_support::OnEveryFileSystem {
 protected:
  std::string folder() const { return In("model/checkpoints"); }
  std::unique_ptr<Store> Open(const std::string& token, int keep, int64_t restored) {
    auto store = Store::Open(files(), {folder(), token, keep, {}}, restored);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  void Write(Store& store, int64_t step) {
    const auto path = store.Write(MakeSnapshot(step));
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(*path, folder() + "/" + CheckpointName(step));
  }
  std::vector<std::string> Names() { return files().List(folder()).value(); }
};
INSTANTIATE_TEST_SUITE_P(All, StoreContract, testing::Bool(), testing_support::BenchName);

TEST_P(StoreContract, WritesAndReads) {
  std::vector<std::string> damaged;
  EXPECT_FALSE(ReadNewest(files(), In("model"), &damaged).value().has_value());
  EXPECT_THAT(ListCheckpoints(files(), folder(), true).value(), IsEmpty());
  const auto store = Open("t", 3, -1);
  EXPECT_THAT(store->steps(), IsEmpty());
  EXPECT_FALSE(ReadNewest(files(), In("model"), &damaged).value().has_value());
  for (const int64_t step : {0, 5}) Write(*store, step);
  for (const std::string& path : {In("model"), folder(), folder() + "/step-00000005"}) {
    const auto newest = ReadNewest(files(), path, &damaged);
    ASSERT_TRUE(newest.ok() && *newest) << newest.status();
    EXPECT_EQ(Difference(**newest, MakeSnapshot(5)), "");
  }
  const auto infos = ListCheckpoints(files(), folder(), true).value();
  ASSERT_EQ(infos.size(), 2u);
  EXPECT_EQ(infos[1].name, "step-00000005");
  EXPECT_EQ(infos[1].step, 5);
  EXPECT_TRUE(infos[1].health.ok());
  EXPECT_GT(infos[1].bytes, 1000);
  const auto contents = ReadContents(files(), infos[1].path);
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->model.size(), MakeSnapshot(5).model.tensors.size());
  EXPECT_EQ(contents->optimizer.at(0).shape, (std::vector<int64_t>{5, 7}));
  EXPECT_EQ(contents->state.step, 5);
}

// Two rows of a table "t" whose keys are `first` and `first` + 1.
std::string RowsText(int64_t first) {
  const int64_t keys[] = {first, first + 1}, step = first;
  const float rows[] = {1, 2, 3, static_cast<float>(first), 5, 6};
  const auto plan = PlanSafetensors({{"t.keys", DType::kInt64, {2}},
                                     {"t.rows", DType::kFloat32, {2, 3}},
                                     {"t.step", DType::kInt64, {}}});
  EXPECT_EQ(plan->order, (std::vector<size_t>{0, 2, 1})) << "wide types first";
  std::string text = plan->head;
  text.append(reinterpret_cast<const char*>(keys), sizeof keys);
  text.append(reinterpret_cast<const char*>(&step), sizeof step);
  text.append(reinterpret_cast<const char*>(rows), sizeof rows);
  EXPECT_EQ(static_cast<int64_t>(text.size()), plan->bytes);
  return text;
}

TEST_P(StoreContract, TablesComeInFilesThatAreWrittenBefore) {
  const auto store = Open("t", 1, -1);
  Snapshot snapshot = MakeSnapshot(3);
  RowSources open;
  for (const int server : {0, 1}) {
    const auto file = store->StageFile(TablesFile(server, 2));
    ASSERT_TRUE(file.ok()) << file.status();
    const std::string text = RowsText(10 * server);
    ASSERT_TRUE((*file)->Append(text.substr(0, 20)).ok());
    ASSERT_TRUE((*file)->Append(text.substr(20)).ok());
    ASSERT_TRUE((*file)->Finish().ok());
    open.push_back((*file)->Open().value());
    snapshot.staged.push_back(*file);
  }
  const auto unused = store->StageFile(TablesFile(0, 2));  // of a save that came to nothing
  ASSERT_TRUE(unused.ok() && (*unused)->Append("half").ok());
  ASSERT_TRUE(store->Write(snapshot).ok());
  const std::string path = folder() + "/step-00000003";
  EXPECT_TRUE(InspectCheckpoint(files(), path, /*verify=*/true).health.ok());
  const auto contents = ReadContents(files(), path);
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->tables.at("tables-00002-of-00002.safetensors").size(), 3u);
  const auto read = ReadCheckpoint(files(), path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->tables.size(), 2u);
  EXPECT_EQ(Difference(*read, MakeSnapshot(3)), "");
  Write(*store, 4);  // which takes the one before away: what is open stays
  EXPECT_THAT(store->steps(), ElementsAre(4));
  for (const RowSources& sources : {open, read->tables}) {
    float row[3];
    const auto& second = *sources.at(1);
    ASSERT_TRUE(second.Read(second.Find("t.rows"), 1, 1, reinterpret_cast<char*>(row)).ok());
    EXPECT_THAT(row, ElementsAre(10, 5, 6));
    TensorSet model = MakeSnapshot(3).model, optimizer;
    ASSERT_TRUE(JoinRows(sources, &model, &optimizer).ok());
    EXPECT_EQ(model.Find("t.rows")->shape, (std::vector<int64_t>{4, 3}));
    int64_t key = 0;
    std::memcpy(&key, model.Find("t.keys")->data + 24, 8);
    EXPECT_EQ(key, 11);
    std::memcpy(&key, optimizer.Find("t.step")->data, 8);
    EXPECT_EQ(key, 10);
  }
}

std::string BytesOf(const TensorSet& set, const std::string& name) {
  const Tensor* tensor = set.Find(name);
  if (tensor == nullptr) return "not there";
  std::string bytes(tensor->bytes(), '\0');
  const auto size = static_cast<int64_t>(bytes.size());
  EXPECT_TRUE(ReadTensor(set, *tensor, 0, size, bytes.data()).ok());
  return bytes;
}

TEST_P(StoreContract, TensorsMayStayInTheirFiles) {
  const auto store = Open("t", 1, -1);
  Write(*store, 3);
  const std::string path = folder() + "/step-00000003";
  std::vector<std::string> damaged;
  const auto read = ReadNewest(files(), folder(), &damaged, {checkpoint::Bytes::kLeft});
  ASSERT_TRUE(read.ok() && *read) << read.status();
  Write(*store, 4);  // which takes it away: what is open stays
  const Snapshot whole = MakeSnapshot(3);
  for (const auto& [left, set] : {std::pair(&(*read)->model, &whole.model),
                                  std::pair(&(*read)->optimizer, &whole.optimizer)}) {
    ASSERT_EQ(left->tensors.size(), set->tensors.size());
    for (const Tensor& tensor : set->tensors) {
      ASSERT_NE(left->Find(tensor.name), nullptr) << tensor.name;
      EXPECT_EQ(left->Find(tensor.name)->data, nullptr);
      EXPECT_EQ(BytesOf(*left, tensor.name), BytesOf(*set, tensor.name)) << tensor.name;
    }
  }
}

TEST_P(StoreContract, DamageIsFoundInWhatIsLeftInItsFile) {
  const auto store = Open("t", 1, -1);
  Write(*store, 3);
  const std::string name = folder() + "/step-00000003/" + kOptimizerFile;
  std::string bytes = ReadFile(files(), name).value();
  bytes.back() ^= 1;
  {
    auto again = *files().Create(name);
    ASSERT_TRUE(again->Append(bytes).ok() && again->Close().ok());
  }
  const auto read =
      ReadCheckpoint(files(), folder() + "/step-00000003", {checkpoint::Bytes::kLeft});
  EXPECT_THAT(std::string(Message(read.status())),
              HasSubstr("optimizer.safetensors does not match its checksum"));
}

TEST_P(StoreContract, DamageInATablesFileIsNamed) {
  const auto store = Open("t", 3, -1);
  Snapshot snapshot = MakeSnapshot(3);
  auto file = *store->StageFile(TablesFile(0, 1));
  ASSERT_TRUE(file->Append(RowsText(1)).ok() && file->Finish().ok());
  snapshot.staged = {std::move(file)};
  ASSERT_TRUE(store->Write(snapshot).ok());
  const std::string name = folder() + "/step-00000003/" + TablesFile(0, 1);
  std::string bytes = ReadFile(files(), name).value();
  bytes.back() ^= 1;
  {
    auto again = *files().Create(name);
    ASSERT_TRUE(again->Append(bytes).ok() && again->Close().ok());
  }
  const auto read = ReadCheckpoint(files(), folder() + "/step-00000003");
  EXPECT_THAT(std::string(Message(read.status())),
              HasSubstr("tables-00001-of-00001.safetensors does not match its checksum"));
  // Where rows may never be needed: once they are.
  const auto later =
      ReadCheckpoint(files(), folder() + "/step-00000003", {.check_later = [] { return true; }});
  ASSERT_TRUE(later.ok()) << later.status();
  const RowSource& rows = *later->tables.at(0);
  int64_t updates = 0;
  EXPECT_TRUE(rows.Read(rows.Find("t.step"), 0, 1, reinterpret_cast<char*>(&updates)).ok());
  for (const char* tensor : {"t.keys", "t.rows", "t.keys"}) {
    std::string row(12, '\0');
    EXPECT_EQ(rows.Read(rows.Find(tensor), 0, 1, row.data()), read.status());
  }
  for (const char* other : {"tables-1-of-2.safetensors", "tables-00001-of-00001.safetensors.tmp",
                            "tables-0000x-of-00001.safetensors", "tables"})
    EXPECT_FALSE(IsTablesFile(other)) << other;
}

TEST_P(StoreContract, KeepsTheNewestTheBestAndThePinned) {
  const auto store = Open("t", 2, -1);
  Write(*store, 1);
  EXPECT_TRUE(store->Pin(1));
  EXPECT_TRUE(store->Pin(1));
  EXPECT_FALSE(store->Pin(2));
  Write(*store, 2);
  EXPECT_TRUE(store->MarkBest(2, "accuracy", 0.5, true).value());
  for (const int64_t step : {3, 4, 5}) Write(*store, step);
  EXPECT_THAT(store->steps(), ElementsAre(1, 2, 4, 5));
  store->Unpin(1);
  EXPECT_THAT(store->steps(), ElementsAre(1, 2, 4, 5));
  store->Unpin(1);
  EXPECT_THAT(store->steps(), ElementsAre(2, 4, 5));
  store->Unpin(1);
  EXPECT_FALSE(store->Pin(1));
  EXPECT_TRUE(store->MarkBest(4, "accuracy", 0.6, true).value());
  EXPECT_THAT(store->steps(), ElementsAre(4, 5));
  EXPECT_THAT(Names(), ElementsAre(".staging", "best", "latest", "step-00000004", "step-00000005"));
  EXPECT_THAT(files().List(folder() + "/.staging/t").value(), IsEmpty());
}

TEST_P(StoreContract, BestIsTheBest) {
  const auto store = Open("t", 9, -1);
  for (const int64_t step : {1, 2, 3, 4}) Write(*store, step);
  const auto mark = [&](int64_t step, const char* metric, double value, bool larger) {
    return store->MarkBest(step, metric, value, larger).value();
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(mark(9, "loss", 1, false));  // not there
  EXPECT_FALSE(mark(1, "loss", std::numeric_limits<double>::quiet_NaN(), false));
  EXPECT_TRUE(mark(1, "loss", kInfinity, false));
  EXPECT_EQ(ReadBest(files(), folder())->value, kInfinity);
  EXPECT_FALSE(mark(2, "loss", kInfinity, false));
  EXPECT_TRUE(mark(2, "loss", 3, false));
  EXPECT_FALSE(mark(3, "loss", 3, false));
  EXPECT_TRUE(mark(3, "loss", 2.5, false));
  EXPECT_TRUE(mark(4, "accuracy", 0.1, true));  // another metric
  EXPECT_FALSE(mark(3, "accuracy", 0.05, true));
  EXPECT_TRUE(mark(4, "accuracy", 0.01, true));  // its own value has changed
  const auto best = ReadBest(files(), folder());
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(best->step, 4);
  EXPECT_EQ(best->metric, "accuracy");
  EXPECT_EQ(best->value, 0.01);
  EXPECT_EQ(ReadFile(files(), folder() + "/best").value(),
            "step-00000004\n{\"metric\":\"accuracy\",\"value\":0.01}\n");
}

TEST_P(StoreContract, TheNextOwnerGoesOn) {
  {
    const auto store = Open("t1", 2, -1);
    for (const int64_t step : {1, 2, 3}) Write(*store, step);
    EXPECT_TRUE(store->MarkBest(2, "loss", 1, false).value());
  }
  // An old one's leftovers, marks that lead nowhere.
  ASSERT_TRUE(MakeDirectories(files(), folder() + "/.staging/t0/step-00000009").ok());
  ASSERT_TRUE(files().Rename(folder() + "/step-00000003", In("elsewhere")).ok());
  const auto store = Open("t2", 2, 2);
  EXPECT_THAT(store->steps(), ElementsAre(2));
  EXPECT_EQ(ReadLatest(files(), folder()), 2);
  EXPECT_EQ(ReadBest(files(), folder())->step, 2);
  EXPECT_THAT(files().List(folder() + "/.staging").value(), ElementsAre("t2"));
  for (const int64_t step : {4, 5, 6}) Write(*store, step);
  EXPECT_THAT(store->steps(), ElementsAre(2, 5, 6));
}

TEST_P(StoreContract, WhatWasNotRestoredGoesAside) {
  {
    const auto store = Open("t1", 5, -1);
    for (const int64_t step : {1, 2, 3, 4}) Write(*store, step);
    EXPECT_TRUE(store->MarkBest(4, "loss", 1, false).value());
  }
  ASSERT_TRUE(files().Remove(folder() + "/step-00000001/state.json").ok());
  for (int again = 0; again < 2; ++again) {
    const auto store = Open("t2", 5, 2);
    EXPECT_THAT(store->steps(), ElementsAre(2));
    EXPECT_EQ(ReadLatest(files(), folder()), 2);
    EXPECT_FALSE(ReadBest(files(), folder()).has_value());
    Write(*store, 3);
  }
  EXPECT_THAT(Names(), ElementsAre(".staging", "damaged-step-00000001", "damaged-step-00000003",
                                   "damaged-step-00000003-2", "damaged-step-00000004", "latest",
                                   "step-00000002", "step-00000003"));
}

TEST_P(StoreContract, ASavedStepIsLeftAsItIs) {
  const auto store = Open("t", 2, -1);
  Write(*store, 1);
  Snapshot other = MakeSnapshot(2);
  other.state.step = 1;
  EXPECT_TRUE(store->Write(other).ok());
  EXPECT_EQ(
      Difference(ReadCheckpoint(files(), folder() + "/step-00000001").value(), MakeSnapshot(1)),
      "");
}

// Callbacks changed the state at the end of training.
TEST_P(StoreContract, TheEndTakesThePlaceOfTheSameStep) {
  for (const int64_t weights_of : {0, 1}) {
    const auto store = Open("t", 2, -1);
    Write(*store, 1);
    Write(*store, 2);
    EXPECT_TRUE(store->MarkBest(2, "loss", 0.5, false).value());
    EXPECT_TRUE(store->Pin(2));
    Snapshot end = MakeSnapshot(3);
    end.state.step = 2;
    end.replaces = true;
    end.state.extras.callbacks.emplace().weights_of = weights_of;
    ASSERT_TRUE(store->Write(end).ok());
    EXPECT_EQ(Difference(ReadCheckpoint(files(), folder() + "/step-00000002").value(), end), "");
    EXPECT_THAT(store->steps(), ElementsAre(1, 2));
    EXPECT_EQ(ReadLatest(files(), folder()), 2);
    EXPECT_EQ(ReadBest(files(), folder()).has_value(), weights_of == 0)
        << "what was measured is gone";
    EXPECT_THAT(files().List(folder() + "/.staging/t").value(), IsEmpty());
    EXPECT_TRUE(store->MarkBest(1, "loss", 0.75, false).value() == (weights_of != 0));
  }
}

TEST_P(StoreContract, ReadersMeetTheOwnerAtWork) {
  const auto store = Open("t", 1, -1);
  Write(*store, 1);
  std::thread owner([&] {
    for (int64_t step = 2; step < 60; ++step) EXPECT_TRUE(store->Write(MakeSnapshot(step)).ok());
  });
  std::vector<std::string> damaged;
  for (int64_t newest = 1; newest < 59;) {
    const auto snapshot = ReadNewest(files(), In("model"), &damaged);
    ASSERT_TRUE(snapshot.ok() && *snapshot) << snapshot.status();
    EXPECT_THAT(damaged, IsEmpty());
    EXPECT_GE((*snapshot)->state.step, newest);
    newest = (*snapshot)->state.step;
    EXPECT_EQ(Difference(**snapshot, MakeSnapshot(newest)), "");
    const auto infos = ListCheckpoints(files(), folder(), false);
    for (const CheckpointInfo& info : *infos) {
      EXPECT_TRUE(info.health.ok() || !files().Exists(info.path).value()) << info.health;
    }
  }
  owner.join();
}

TEST_P(StoreContract, TokensAreLettersAndDigits) {
  for (const char* token : {"", "a/b", "..", "a b", "a.gone"}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(Store::Open(files(), {folder(), token, 1, {}}, -1).status()));
  }
}

TEST(StoreFence, StopsEachRename) {
  MemoryFileSystem files;
  absl::Status verdict;
  const auto store =
      Store::Open(files, {"/checkpoints", "t", 1, [&verdict] { return verdict; }}, -1).value();
  ASSERT_TRUE(store->Write(MakeSnapshot(1)).ok());
  verdict = Superseded("chief 1 has taken over");
  const absl::Status status = store->Write(MakeSnapshot(2)).status();
  EXPECT_TRUE(absl::IsAborted(status));
  EXPECT_EQ(Message(status), "could not save checkpoint step-00000002: chief 1 has taken over");
  EXPECT_TRUE(absl::IsAborted(store->MarkBest(1, "loss", 1, false).status()));
  EXPECT_THAT(store->steps(), ElementsAre(1));
  EXPECT_THAT(files.List("/checkpoints").value(),
              ElementsAre(".staging", "latest", "step-00000001"));
}

// Steps 3 and 6 on a disk in memory; of 6 something is damaged.
class Damage : public testing::Test {
 protected:
  Damage() {
    const auto store = Store::Open(files_, {"/checkpoints", "t", 3, {}}, -1).value();
    for (const int64_t step : {3, 6}) EXPECT_TRUE(store->Write(MakeSnapshot(step)).ok());
  }
  static std::string Path(const std::string& file) { return "/checkpoints/step-00000006/" + file; }

  // The file whose entry in the manifest has this byte; the manifest itself where it is in none.
  static std::string EntryAt(const std::string& manifest, size_t at) {
    std::string last = kManifestFile;
    const Manifest parsed = ParseManifest(manifest).value();
    for (const auto& [name, file] : parsed.files)
      if (manifest.find('"' + name + '"') <= at) last = name;
    return last;
  }

  // The sentence about 6, after which 3 is taken; "" where 6 is as it was in spite of all.
  std::string Judge() {
    std::vector<std::string> damaged;
    const auto newest = ReadNewest(files_, "/checkpoints", &damaged);
    if (!newest.ok() || !*newest) return "nothing was read: " + newest.status().ToString();
    const bool whole = damaged.empty();
    EXPECT_EQ(Difference(**newest, MakeSnapshot(whole ? 6 : 3)), "");
    EXPECT_EQ(ListCheckpoints(files_, "/checkpoints", true).value().at(1).health.ok(), whole);
    if (whole) return "";
    EXPECT_EQ(damaged.size(), 1u);
    EXPECT_TRUE(damaged[0].starts_with("checkpoint step-00000006 is damaged: ")) << damaged[0];
    return damaged[0].substr(37);
  }

  MemoryFileSystem files_;
};

TEST_F(Damage, IsReportedInASentence) {
  const std::string model = ReadFile(files_, Path("model.safetensors")).value();
  ASSERT_TRUE(files_.Overwrite(Path("model.safetensors"), model.substr(0, model.size() - 12)).ok());
  EXPECT_EQ(Judge(), fmt::format("model.safetensors is 12 bytes too short ({} of {})",
                                 model.size() - 12, model.size()));
  ASSERT_TRUE(files_.Overwrite(Path("model.safetensors"), model + "x").ok());
  EXPECT_THAT(Judge(), HasSubstr("model.safetensors is 1 bytes too long"));
  std::string flipped = model;
  flipped.back() ^= 1;
  ASSERT_TRUE(files_.Overwrite(Path("model.safetensors"), flipped).ok());
  EXPECT_THAT(Judge(), HasSubstr("model.safetensors does not match its checksum (CRC-32C "));
  ASSERT_TRUE(files_.Remove(Path("model.safetensors")).ok());
  EXPECT_EQ(Judge(), "model.safetensors is missing");
  ASSERT_TRUE(files_.Overwrite(Path("manifest.json"), "{").ok());
  EXPECT_THAT(Judge(), HasSubstr("manifest.json: it is not valid JSON: line 1, column "));
  ASSERT_TRUE(files_.Remove("/checkpoints/step-00000003/state.json").ok());
  std::vector<std::string> damaged;
  const absl::Status none = ReadNewest(files_, "/checkpoints", &damaged).status();
  EXPECT_TRUE(absl::IsDataLoss(none));
  EXPECT_THAT(none.ToString(), HasSubstr("no checkpoint in /checkpoints can be read: checkpoint "
                                         "step-00000006 is damaged: manifest.json"));
  EXPECT_EQ(damaged.size(), 2u);
}

TEST_F(Damage, EveryFlippedByteIsFound) {
  std::mt19937 random(9);
  for (const char* name :
       {"manifest.json", "state.json", "optimizer.safetensors", "model.safetensors"}) {
    const std::string good = ReadFile(files_, Path(name)).value();
    int harmless = 0;
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
      ASSERT_TRUE(files_.Overwrite(Path(name), bad).ok());
      const std::string what = Judge();
      harmless += what.empty() ? 1 : 0;
      // A file that disagrees with the manifest may be named instead of the manifest.
      const std::string other = name == std::string(kManifestFile) ? EntryAt(good, at) : name;
      EXPECT_TRUE(what.empty() || what.starts_with(name) || what.starts_with(other)) << what;
      ASSERT_FALSE(HasFailure()) << name << " at " << at << ": " << what;
    }
    ASSERT_TRUE(files_.Overwrite(Path(name), good).ok());
    // A blank for another one, or a hexadecimal digit's case, in the manifest.
    EXPECT_LE(harmless, std::string(name) == "manifest.json" ? 40 : 0) << name;
    EXPECT_EQ(Judge(), "");
  }
}

TEST_F(Damage, EveryTruncationIsFound) {
  for (const char* name :
       {"manifest.json", "state.json", "optimizer.safetensors", "model.safetensors"}) {
    const std::string good = ReadFile(files_, Path(name)).value();
    // All but the last byte of the manifest is JSON that is whole.
    const size_t longest = good.size() - (std::string(name) == "manifest.json" ? 1 : 0);
    for (size_t size = 0; size < longest; size += size < 400 ? 1 : 7) {
      ASSERT_TRUE(files_.Overwrite(Path(name), good.substr(0, size)).ok());
      EXPECT_THAT(Judge(), HasSubstr(name)) << size;
      ASSERT_FALSE(HasFailure());
    }
    ASSERT_TRUE(files_.Overwrite(Path(name), good).ok());
  }
}

TEST_F(Damage, ASingleOneIsADataError) {
  ASSERT_TRUE(files_.Overwrite(Path("state.json"), "").ok());
  const absl::Status status = ReadCheckpoint(files_, "/checkpoints/step-00000006").status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kDataDamaged);
  std::vector<std::string> damaged;
  EXPECT_EQ(ReadNewest(files_, "/checkpoints/step-00000006", &damaged).status(), status);
  EXPECT_EQ(ReadContents(files_, "/checkpoints/step-00000006").status(), status);
}

TEST_F(Damage, AFileSystemThatFailsIsNoDamage) {
  files_.SetBefore([](const MemoryFileSystem::Operation&) {
    return absl::PermissionDeniedError("cannot open it: Permission denied");
  });
  std::vector<std::string> damaged;
  EXPECT_TRUE(absl::IsPermissionDenied(ReadNewest(files_, "/checkpoints", &damaged).status()));
}

}  // namespace
}  // namespace muster::checkpoint
