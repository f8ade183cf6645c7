#include "common/exported/graph/archive.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "common/exported/archive_writer.h"
#include "tests/unit/exported/test_file.h"

namespace muster::exported {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void ExpectRefused(const std::string& path, ExitCode code, const std::string& what) {
  const auto archive = ReadArchive(path, "");
  ASSERT_FALSE(archive.ok()) << what;
  EXPECT_EQ(ExitCodeOf(archive.status()), code) << archive.status();
  EXPECT_THAT(archive.status().message(), AllOf(HasSubstr(path), HasSubstr(what)));
}

TEST(ExportedArchive, TensorsOfEveryType) {
  TestFile file;
  std::map<std::string, at::Tensor> written;
  for (const at::ScalarType type :
       {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kFloat, at::kDouble,
        at::kComplexFloat, at::kComplexDouble, at::kBool, at::kBFloat16, at::kUInt16,
        at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    const std::string name = c10::toString(type);
    written[name] = at::arange(6, at::kFloat).reshape({2, 3}).to(type);
    file.Buffer(name, written[name]);
  }
  file.Buffer("empty", at::zeros({0, 3}));
  file.Constant("table", at::arange(4));
  const auto archive = ReadArchive(file.Write(), "");
  ASSERT_TRUE(archive.ok()) << archive.status();
  for (const auto& [name, tensor] : written) {
    const at::Tensor& read = archive->weights.at(name);
    EXPECT_EQ(read.scalar_type(), tensor.scalar_type());
    EXPECT_TRUE(at::equal(read.to(at::kComplexDouble), tensor.to(at::kComplexDouble))) << name;
  }
  EXPECT_EQ(archive->weights.at("empty").sizes(), at::IntArrayRef({0, 3}));
  EXPECT_TRUE(at::equal(archive->constants.at("table"), at::arange(4)));
  EXPECT_EQ(archive->model, "model");
}

TEST(ExportedArchive, TiedWeightsAreOneTensorAndDisjointPartsAreTwo) {
  TestFile file;
  file.Parameter("a", at::arange(6, at::kFloat).reshape({2, 3}))
      .Tied("b", "a")
      .Tied("c", "a")
      .Tied("d", "a");
  const auto part = [&](const std::string& name, int64_t size, int64_t offset) {
    Json& meta = file.weights()[name]["tensor_meta"];
    meta["sizes"] = Json::array({{{"as_int", size}}});
    meta["strides"] = Json::array({{{"as_int", 1}}});
    meta["storage_offset"] = {{"as_int", offset}};
  };
  part("a", 4, 0);
  part("b", 4, 0);
  part("c", 2, 4);
  part("d", 2, 4);
  auto archive = ReadArchive(file.Write(), "");
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_TRUE(archive->weights.at("a").is_same(archive->weights.at("b")));
  EXPECT_FALSE(archive->weights.at("a").is_alias_of(archive->weights.at("c")));
  EXPECT_TRUE(at::equal(archive->weights.at("c"), at::arange(4, 6, at::kFloat)));

  part("d", 3, 3);
  const auto overlapping = ReadArchive(file.Write("overlapping.pt2"), "");
  EXPECT_EQ(ExitCodeOf(overlapping.status()), ExitCode::kConfiguration);
  EXPECT_THAT(overlapping.status().message(), HasSubstr("different views of the same memory"));
}

TEST(ExportedArchive, WritesItselfBackWithOtherWeights) {
  TestFile file;
  file.Input("x", {-1, 2})
      .Parameter("w", at::zeros({2, 3}))
      .Tied("v", "w")
      .Buffer("n", at::zeros({}, at::kLong));
  file.Constant("table", at::arange(4)).members()["data/sample_inputs/model.pt"] = "as it was";
  const auto archive = ReadArchive(file.Write(), "");
  ASSERT_TRUE(archive.ok()) << archive.status();
  const at::Tensor w = at::arange(6, at::kFloat).reshape({2, 3});
  const std::string output = TempPath("trained.pt2");
  const absl::Status wrote =
      WriteTrained(*archive, {{"w", w}, {"v", w}, {"n", at::ones({}, at::kLong)}}, output);
  ASSERT_TRUE(wrote.ok()) << wrote;
  const auto again = ReadArchive(output, "");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->program, archive->program);
  EXPECT_TRUE(at::equal(again->weights.at("w"), w));
  EXPECT_TRUE(again->weights.at("v").is_same(again->weights.at("w")));
  EXPECT_EQ(again->weights.at("n").item<int64_t>(), 1);

  EXPECT_THAT(WriteTrained(*archive, {{"w", w}}, output).message(), HasSubstr("none of that name"));
  EXPECT_THAT(WriteTrained(*archive, {{"w", w}, {"v", w}, {"n", at::ones({2}, at::kLong)}}, output)
                  .message(),
              HasSubstr("\"n\" is"));
  const absl::Status nowhere = WriteTrained(
      *archive, {{"w", w}, {"v", w}, {"n", at::ones({}, at::kLong)}}, TempPath("no/such/folder"));
  EXPECT_EQ(ExitCodeOf(nowhere), ExitCode::kConfiguration);
}

TEST(ExportedArchive, FilesOfOtherKindsAreNamed) {
  const auto with = [](const std::string& member) {
    TestFile file;
    file.members() = {{"models/model.json", "absent"}, {member, "x"}};
    return file.Write();
  };
  ExpectRefused(with("constants.pkl"), ExitCode::kConfiguration, "torch.export");
  ExpectRefused(with("code/__torch__.py"), ExitCode::kConfiguration, "TorchScript");
  ExpectRefused(with("data.pkl"), ExitCode::kConfiguration, "torch.save");
  ExpectRefused(with("serialized_exported_program.json"), ExitCode::kConfiguration,
                "older torch.export.save");
  ExpectRefused(with("data/aotinductor/model/x.so"), ExitCode::kConfiguration, "AOTInductor");
  ExpectRefused(with("anything"), ExitCode::kConfiguration, "without an exported program");
}

TEST(ExportedArchive, VersionsThatItDoesNotKnow) {
  TestFile file;
  file.program()["schema_version"]["major"] = 9;
  ExpectRefused(file.Write(), ExitCode::kConfiguration, "schema version 9.17");
  file.program()["schema_version"] = {{"major", 8}, {"minor", 99}};
  EXPECT_TRUE(ReadArchive(file.Write(), "").ok());
  file.program().erase("schema_version");
  ExpectRefused(file.Write(), ExitCode::kDataDamaged, "schema_version");
}

TEST(ExportedArchive, DamageIsNamed) {
  TestFile file;
  file.Parameter("w", at::zeros({2, 3}));
  const std::string member = file.members().begin()->first;
  const std::string bytes = file.members()[member];
  file.members()[member] = bytes.substr(4);
  ExpectRefused(file.Write(), ExitCode::kDataDamaged, "\"w\" needs 6 elements");
  file.members()[member] = "absent";
  ExpectRefused(file.Write(), ExitCode::kDataDamaged, member + " is missing");
  file.members()[member] = bytes;
  file.members()["models/model.json"] = "{ this is no JSON";
  ExpectRefused(file.Write(), ExitCode::kDataDamaged, "models/model.json is not valid JSON");
  file.members()["models/model.json"] = "[1]";
  ExpectRefused(file.Write(), ExitCode::kDataDamaged, "no JSON object");
  file.members()["models/model.json"] =
      R"({"a": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  ExpectRefused(file.Write(), ExitCode::kDataDamaged, "is nested deeper than 64 levels");
  file.members().erase("models/model.json");
  file.weights()["w"]["tensor_meta"]["dtype"] = 77;
  ExpectRefused(file.Write(), ExitCode::kDataDamaged, "no type with the number 77");
  file.weights()["w"]["tensor_meta"]["dtype"] = 7;
  file.weights()["w"]["tensor_meta"]["strides"][0]["as_int"] = int64_t{1} << 61;
  ExpectRefused(file.Write(), ExitCode::kDataDamaged, "\"w\" needs");
  file.weights()["w"].erase("tensor_meta");
  ExpectRefused(file.Write(), ExitCode::kDataDamaged, "tensor_meta");
}

TEST(ExportedArchive, DeepJsonIsDamage) {
  TestFile file;
  const std::string brackets(100'000, '[');
  file.members()["models/model.json"] = "{\"graph_module\": " + brackets;
  ExpectRefused(file.Write(), ExitCode::kDataDamaged, "nested deeper");
}

// A view may be larger than what it is of; memory is not taken on its word.
TEST(ExportedArchive, ExpandedBuffersAreBounded) {
  TestFile file;
  file.Buffer("a", at::ones({1})).Buffer("b", at::ones({1}));
  const auto expand = [&](const std::string& name, int64_t times) {
    Json& meta = file.weights()[name]["tensor_meta"];
    meta["sizes"] = Json::array({{{"as_int", 2}}, {{"as_int", times}}});
    meta["strides"] = Json::array({{{"as_int", 0}}, {{"as_int", 0}}});
  };
  expand("a", 1000);
  expand("b", 3);
  const auto archive = ReadArchive(file.Write(), "");
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_TRUE(at::equal(archive->weights.at("b"), at::ones({2, 3})));
  for (const int64_t times : {int64_t{1} << 28, int64_t{1} << 40, int64_t{1} << 59}) {
    expand("b", times);
    ExpectRefused(file.Write(), ExitCode::kDataDamaged, "with \"b\" its tensors take far more");
  }
  expand("b", int64_t{1} << 62);
  ExpectRefused(file.Write(), ExitCode::kDataDamaged, "do not fit together");
}

TEST(ExportedArchive, ObjectsOfPythonClassesAreRefusedByName) {
  TestFile file;
  file.Parameter("w", at::zeros({2, 3}));
  file.weights()["w"]["use_pickle"] = true;
  ExpectRefused(file.Write(), ExitCode::kConfiguration, "\"w\" is an object of a Python class");
}

TEST(ExportedArchive, OneOfSeveralModelsIsChosenByName) {
  TestFile file;
  file.members()["models/teacher.json"] = "{}";
  const std::string path = file.Write();
  ExpectRefused(path, ExitCode::kConfiguration, "several models");
  EXPECT_TRUE(ReadArchive(path, "model").ok());
  EXPECT_THAT(ReadArchive(path, "pupil").status().message(), HasSubstr("no model \"pupil\""));
}

}  // namespace
}  // namespace muster::exported
