// Truncated and mutated TF_CONFIGs: never a crash, always a configuration or one line of refusal.
#include <gtest/gtest.h>

#include <random>

#include "common/cluster/cluster_config.h"

namespace muster {
namespace {

const std::string kCorpus[] = {
    R"({"cluster":{"chief":["a:1"],"worker":["b:1","[::1]:2"],"ps":["p:1"]},"task":{"type":"worker","index":1},"environment":"cloud"})",
    R"({"cluster":{"worker":{"0":"a:1","1":"b:1"}},"task":{"type":"Worker","index":"1"}})",
    R"({"cluster":{"worker":{"1":"b:1"},"ps":["p:1"]},"task":{"type":"worker","index":1}})",
    R"({"cluster":{"worker":{},"ps":["p:1"]},"task":{"type":"ps","index":3}})",
};

void ExpectVerdict(const std::string& text) {
  const absl::StatusOr<ClusterConfig> config = ParseTfConfig(text);
  if (!config.ok()) {
    EXPECT_EQ(ExitCodeOf(config.status()), ExitCode::kConfiguration) << text;
    const std::string_view message = Message(config.status());
    EXPECT_FALSE(message.empty()) << text;
    EXPECT_EQ(message.find_first_of("\n\r"), std::string_view::npos) << message;
    return;
  }
  // An accepted configuration is consistent.
  if (config->rank()) {
    EXPECT_LT(*config->rank(), *config->world_size()) << text;
  }
  if (!config->local() && !config->dynamic && config->task->type != TaskType::kEvaluator) {
    EXPECT_TRUE(config->cluster.Has(*config->task)) << text;
  }
  EXPECT_EQ(SpecFromJson(config->cluster.ToJson())->Digest(), config->cluster.Digest()) << text;
}

TEST(Mutation, EveryPrefix) {
  for (const std::string& text : kCorpus) {
    for (size_t length = 0; length < text.size(); ++length) ExpectVerdict(text.substr(0, length));
  }
}

TEST(Mutation, EveryByteReplaced) {
  constexpr char kBytes[] = "\0\n\"{}[],:0-9.eax\\\x80\xff";
  for (std::string text : kCorpus) {
    for (char& c : text) {
      const char original = c;
      for (const char byte : std::string_view(kBytes, sizeof kBytes - 1)) {
        c = byte;
        ExpectVerdict(text);
      }
      c = original;
    }
  }
}

TEST(Mutation, RandomSplices) {
  std::mt19937 random(7);
  const auto below = [&random](size_t bound) { return random() % bound; };
  for (int round = 0; round < 20000; ++round) {
    std::string text = kCorpus[below(std::size(kCorpus))];
    for (size_t edits = 1 + below(4); edits > 0; --edits) {
      const std::string& donor = kCorpus[below(std::size(kCorpus))];
      const size_t from = below(donor.size()), at = below(text.size() + 1);
      text.replace(at, below(12), donor.substr(from, below(20)));
    }
    ExpectVerdict(text);
  }
}

TEST(Mutation, DeepNesting) {
  const std::string deep(100000, '[');
  ExpectVerdict(deep);
  ExpectVerdict(R"({"cluster":)" + deep + std::string(100000, ']') + "}");
  ExpectVerdict(R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":")" + deep +
                R"("}})");
  ExpectVerdict(R"({"x":)" + deep + std::string(100000, ']') + "}");
}

}  // namespace
}  // namespace muster
