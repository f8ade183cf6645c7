#include "common/checkpoint/export_file.h"

#include <gmock/gmock.h>

#include "common/checkpoint/weights_file.h"
#include "tests/unit/checkpoint/memory_file_system.h"
#include "tests/unit/checkpoint/snapshots.h"

namespace muster::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::Difference;
using testing_support::EveryType;
using testing_support::MakeTensors;

constexpr char kPath[] = "/w.safetensors";

Snapshot Make() {
  Snapshot snapshot;
  snapshot.model = EveryType(1);
  snapshot.optimizer = MakeTensors({{"sgd.weight.momentum", DType::kFloat32, {2, 3}}}, 2);
  snapshot.replica_buffers = MakeTensors({{"pool", DType::kInt64, {2, 5}}}, 3);
  snapshot.state.step = 42;
  snapshot.state.epoch = 3;
  snapshot.state.epoch_loss_sum = 1.0 / 3;
  snapshot.state.global_batch_size = 12;
  snapshot.state.run_id = "run";
  snapshot.state.job = {{"program", "li\"near"}, {"program_args", {{"x", 1}}}};
  snapshot.state.versions = {{"muster", "1.2.3"}, {"libtorch", "2.11"}};
  return snapshot;
}

TEST(Export, ComesBackWithAndWithoutSlots) {
  const Snapshot snapshot = Make();
  for (const bool slots : {false, true}) {
    MemoryFileSystem files;
    ASSERT_TRUE(WriteExport(files, snapshot, slots, kPath).ok());
    EXPECT_THAT(*files.List("/"), ElementsAre("w.safetensors"));
    const auto read = ReadExport(files, kPath);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read->ours);
    EXPECT_EQ(read->slots, slots);
    EXPECT_EQ(Difference(snapshot.model, read->snapshot.model), "");
    EXPECT_EQ(ToJson(read->snapshot.state), ToJson(snapshot.state));
    if (slots) {
      EXPECT_EQ(Difference(snapshot.optimizer, read->snapshot.optimizer), "");
      EXPECT_EQ(Difference(snapshot.replica_buffers, read->snapshot.replica_buffers), "");
    } else {
      EXPECT_THAT(read->snapshot.optimizer.tensors, IsEmpty());
      EXPECT_THAT(read->snapshot.replica_buffers.tensors, IsEmpty());
    }
    // `load` reads the models alone from the file.
    int files_read = 0;
    ASSERT_TRUE(ReadWeights(files, kPath, [&](const WeightsFile& file) {
                  ++files_read;
                  EXPECT_EQ(Difference(snapshot.model, file.set), "");
                  return absl::OkStatus();
                }).ok());
    EXPECT_EQ(files_read, 1);
  }
}

TEST(Export, TheMetadataIsForPython) {
  MemoryFileSystem files;
  ASSERT_TRUE(WriteExport(files, Make(), true, kPath).ok());
  Metadata metadata;
  uint32_t crc = 0;
  ASSERT_TRUE(ReadSafetensors(*files.Open(kPath).value(), &crc, nullptr, &metadata).ok());
  metadata.erase("state");
  EXPECT_EQ(metadata, (Metadata{{"format", "pt"},
                                {"muster", "1.2.3"},
                                {"libtorch", "2.11"},
                                {"program", R"("li\"near")"},
                                {"program_args", R"({"x":1})"},
                                {"step", "42"},
                                {"slots", "true"}}));
}

TEST(Export, AFileOfOthersIsAModel) {
  MemoryFileSystem files;
  // "optimizer/" means nothing in it.
  const TensorSet set = MakeTensors(
      {{"optimizer/a", DType::kFloat32, {3}}, {"b", DType::kUInt8, {1}}, {"c", DType::kInt64, {2}}},
      4);
  ChecksummedFile out(files.Create(kPath).value());
  ASSERT_TRUE(WriteSafetensors(set, out).ok());
  ASSERT_TRUE(out.Finish().ok());
  const auto read = ReadExport(files, kPath);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->ours);
  EXPECT_FALSE(read->slots);
  EXPECT_EQ(read->snapshot.state.step, 0);
  EXPECT_EQ(Difference(set, read->snapshot.model), "");
}

TEST(Export, TensorsThatAreNotAlignedAreMoved) {
  // Byte first, then a float32: the format allows it.
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  const float value = 1.5f;
  bytes += header + "x" + std::string(reinterpret_cast<const char*>(&value), sizeof value);
  MemoryFileSystem files;
  (void)files.Create(kPath).value();
  ASSERT_TRUE(files.Overwrite(kPath, bytes).ok());
  const auto read = ReadExport(files, kPath);
  ASSERT_TRUE(read.ok()) << read.status();
  const Tensor* tensor = read->snapshot.model.Find("b");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->data) % sizeof(float), 0u);
  EXPECT_EQ(*reinterpret_cast<const float*>(tensor->data), value);
  EXPECT_EQ(*read->snapshot.model.Find("a")->data, 'x');
}

TEST(Export, WhatIsWrongIsSaid) {
  MemoryFileSystem files;
  EXPECT_TRUE(absl::IsNotFound(ReadExport(files, kPath).status()));
  ASSERT_TRUE(WriteExport(files, Make(), true, kPath).ok());
  const std::string whole = ReadFile(files, kPath).value();
  ASSERT_TRUE(files.Overwrite(kPath, whole.substr(0, whole.size() - 1)).ok());
  absl::Status status = ReadExport(files, kPath).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("/w.safetensors: "));
  // A state that is none.
  std::string other = whole;
  const size_t at = other.find("run_id");
  other.replace(at, 6, "run-id");
  ASSERT_TRUE(files.Overwrite(kPath, other).ok());
  status = ReadExport(files, kPath).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("\"state\" in its metadata"));
  Snapshot taken = Make();
  taken.model = MakeTensors({{"optimizer/weight", DType::kFloat32, {1}}}, 5);
  status = WriteExport(files, taken, false, "/other.safetensors");
  EXPECT_THAT(std::string(Message(status)), HasSubstr("\"optimizer/weight\""));
  EXPECT_THAT(*files.List("/"), ElementsAre("w.safetensors"));
}

}  // namespace
}  // namespace muster::checkpoint
