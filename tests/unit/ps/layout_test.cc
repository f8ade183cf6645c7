#include "common/push_pull/layout.h"

#include <gmock/gmock.h>

#include <map>

namespace muster::push_pull {
namespace {

using ::testing::HasSubstr;

const std::vector<VariableSpec>& Variables() {
  static const std::vector<VariableSpec> variables = {{"conv.weight", {32, 1, 3, 3}, 0},
                                                      {"conv.bias", {32}, 0},
                                                      {"dense.weight", {1024, 5408}, 0},
                                                      {"dense.bias", {1024}, 0},
                                                      {"scale", {}, 1},
                                                      {"none", {0, 7}, 1},
                                                      {"other.weight", {3, 100000}, 1},
                                                      {"out.weight", {10, 1024}},
                                                      {"out.bias", {10}}};
  return variables;
}

LayoutOptions Options(int servers, Partitioner partitioner = {}, int64_t chunk_bytes = 1 << 20) {
  return {servers, partitioner, chunk_bytes};
}

// Every element of every variable is in one part, every place of a server in one chunk of the right
// optimizer.
void ExpectWhole(const std::vector<VariableSpec>& variables, const LayoutOptions& options) {
  const Layout layout = MakeLayout(variables, options);
  std::map<int, int64_t> covered;
  std::vector<std::map<int64_t, int64_t>> memory(options.servers);  // begin -> end
  for (const VariablePart& part : layout.parts) {
    EXPECT_EQ(part.begin, covered[part.variable]);
    covered[part.variable] = part.end;
    const VariableSpec& variable = variables[part.variable];
    const int64_t row = variable.shape.empty() || variable.shape[0] == 0
                            ? 1
                            : variable.elements() / variable.shape[0];
    EXPECT_EQ(part.begin % row, 0) << variable.name;
    if (part.elements() == 0) continue;
    EXPECT_TRUE(memory[part.server].emplace(part.offset, part.offset + part.elements()).second);
    for (const Chunk& chunk : layout.chunks[part.server]) {
      const bool overlap = chunk.begin < part.offset + part.elements() && part.offset < chunk.end;
      if (overlap) {
        EXPECT_EQ(chunk.optimizer, variable.optimizer);
      }
    }
  }
  for (size_t v = 0; v < variables.size(); ++v)
    EXPECT_EQ(covered[static_cast<int>(v)], variables[v].elements());
  for (int s = 0; s < options.servers; ++s) {
    int64_t at = 0;
    for (const auto& [begin, end] : memory[s]) {
      EXPECT_EQ(begin, at);
      at = end;
    }
    EXPECT_EQ(at, layout.elements[s]);
    at = 0;
    for (const Chunk& chunk : layout.chunks[s]) {
      EXPECT_EQ(chunk.server, s);
      EXPECT_EQ(chunk.begin, at);
      EXPECT_GT(chunk.elements(), 0);
      EXPECT_LE(chunk.elements() * 4, options.chunk_bytes);
      at = chunk.end;
    }
    EXPECT_EQ(at, layout.elements[s]);
  }
}

TEST(Layout, EveryElementHasOnePlace) {
  using Kind = Partitioner::Kind;
  for (const int servers : {1, 2, 3, 7})
    for (const Partitioner& partitioner :
         {Partitioner{}, Partitioner{Kind::kMaxSize, 100000}, Partitioner{Kind::kFixed, 0, 5},
          Partitioner{Kind::kMinSize, 4096, 2}, Partitioner{Kind::kMaxSize, 4, 1000}})
      for (const int64_t chunk_bytes : {int64_t{100000}, int64_t{1} << 20})
        ExpectWhole(Variables(), Options(servers, partitioner, chunk_bytes));
  ExpectWhole({{"a", {7, 3}}, {"b", {}}, {"c", {5}, 1}}, Options(2, {Kind::kFixed, 0, 3}, 4));
  ExpectWhole({}, Options(3));
}

TEST(Layout, PartsAreAsTheirPartitionerSays) {
  const auto count = [](const LayoutOptions& options, int variable) {
    const Layout layout = MakeLayout(Variables(), options);
    return std::count_if(layout.parts.begin(), layout.parts.end(),
                         [&](const VariablePart& p) { return p.variable == variable; });
  };
  using Kind = Partitioner::Kind;
  EXPECT_EQ(count(Options(4), 2), 4);  // 22 MB
  EXPECT_EQ(count(Options(4), 1), 1);  // 128 bytes
  EXPECT_EQ(count(Options(4), 6), 3);  // no more than rows
  EXPECT_EQ(count(Options(4, {Kind::kMinSize, 256 << 10, 2}), 2), 2);
  EXPECT_EQ(count(Options(4, {Kind::kMaxSize, 1 << 20}), 2), 22);  // 21.125 MiB
  EXPECT_EQ(count(Options(4, {Kind::kMaxSize, 1 << 20, 7}), 2), 7);
  EXPECT_EQ(count(Options(4, {Kind::kFixed, 0, 6}), 1), 6);
}

TEST(Layout, ServersHoldAboutTheSame) {
  for (const int servers : {2, 3, 4}) {
    const Layout layout = MakeLayout(Variables(), Options(servers));
    const auto [least, most] = std::minmax_element(layout.elements.begin(), layout.elements.end());
    EXPECT_LT(*most - *least, 200000) << servers;
  }
}

TEST(Layout, SmallVariablesShareAChunk) {
  const Layout layout = MakeLayout({{"a", {10}}, {"b", {10}}, {"c", {10}, 1}}, Options(1));
  ASSERT_EQ(layout.chunks[0].size(), 2u);
  EXPECT_EQ(layout.chunks[0][0].elements(), 20);
}

// The sizes of a call from any caller.
TEST(Layout, SizesThatNoJobHasAreRefused) {
  EXPECT_TRUE(CheckSizes(Variables(), Options(2)).ok());
  constexpr int64_t kHuge = int64_t{1} << 40, kHalf = int64_t{1} << 62;
  LayoutOptions tiny = Options(1), fixed = Options(1), large = Options(1);
  tiny.chunk_bytes = 4;
  fixed.partitioner = {Partitioner::Kind::kFixed, 4, int64_t{1} << 40};
  large.partitioner = {Partitioner::Kind::kMaxSize, INT64_MAX, std::nullopt};
  EXPECT_TRUE(CheckSizes(Variables(), large).ok());
  const std::tuple<std::vector<VariableSpec>, LayoutOptions, const char*> cases[] = {
      {{{"v", {kHuge}}}, tiny, "more than 1099511627776 elements"},
      {{{"v", {kHalf, 8}}}, Options(1), "elements"},  // 0, where it wraps
      {{{"v", {kHalf, kHalf, 3}}}, Options(1), "elements"},
      {{{"a", {kHuge / 2}}, {"b", {kHuge / 2}}}, Options(1), "elements"},
      {{{"v", {1 << 30}}}, tiny, "chunks"},
      {{{"v", {1 << 30}}}, fixed, "chunks"},
      {{{"v", {-1, -4}}}, Options(1), "negative"}};
  for (const auto& [variables, options, why] : cases) {
    const absl::Status status = CheckSizes(variables, options);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration) << why;
    EXPECT_NE(Message(status).find(why), std::string_view::npos) << status;
  }
  EXPECT_EQ((VariableSpec{"v", {0, kHalf, kHalf}}.elements()), 0);
}

TEST(Layout, ADifferenceIsNamed) {
  std::vector<VariableSpec> theirs = Variables();
  EXPECT_EQ(FirstDifference(Variables(), theirs), "");
  const std::string digest = DigestOf(Variables(), Options(2));
  EXPECT_EQ(digest, DigestOf(theirs, Options(2)));
  EXPECT_NE(digest, DigestOf(theirs, Options(3)));
  theirs[0].shape[0] = 16;
  EXPECT_NE(digest, DigestOf(theirs, Options(2)));
  EXPECT_EQ(FirstDifference(Variables(), theirs),
            "the shape of conv.weight: [32, 1, 3, 3] here, [16, 1, 3, 3] there");
  theirs = Variables();
  theirs[1].name = "bias";
  EXPECT_EQ(FirstDifference(Variables(), theirs), "variable 2: conv.bias here, bias there");
  theirs = Variables();
  theirs.pop_back();
  EXPECT_EQ(FirstDifference(Variables(), theirs), "the number of variables: 9 here, 8 there");
}

TEST(Layout, PartitionersAreReadAndRefused) {
  const auto read = [](const char* text) { return ParsePartitioner(Json::parse(text)); };
  EXPECT_EQ(read("\"max_size\"")->kind, Partitioner::Kind::kMaxSize);
  EXPECT_EQ(read(R"({"name": "fixed", "parts": 3})")->parts, 3);
  EXPECT_EQ(read(R"({"bytes": 1000})")->bytes, 1000);
  for (const auto& [text, sentence] : std::vector<std::pair<const char*, const char*>>{
           {R"("even")",
            "parameter_server.partitioner.name must be one of min_size, max_size, fixed"},
           {R"("fixed")", "parameter_server.partitioner.parts is missing"},
           {R"({"name": "fixed", "parts": 0})", "parts must be at least 1, is 0"},
           {R"({"name": "fixed", "parts": 2, "bytes": 9})",
            "unknown key \"parameter_server.partitioner.bytes\""},
           {R"({"bytes": 3})", "bytes must be at least 4, is 3"},
           {R"({"byte": 3})", "did you mean \"bytes\"?"},
           {R"(7)", "parameter_server.partitioner must be a JSON object"}}) {
    const auto partitioner = read(text);
    ASSERT_FALSE(partitioner.ok()) << text;
    EXPECT_EQ(ExitCodeOf(partitioner.status()), ExitCode::kConfiguration);
    EXPECT_THAT(std::string(Message(partitioner.status())), HasSubstr(sentence));
  }
}

}  // namespace
}  // namespace muster::push_pull
