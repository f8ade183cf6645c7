#include "common/data/loader_tuner.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace muster::data {
namespace {

using testing::HasSubstr;

// A pipeline of which loading one batch costs a thread `load` seconds, and a step takes `step`. The
// loader's threads do not slow the step down until there are more than `free` of them, from where
// on each one more costs it `crowd`.
struct Machine {
  double load = 0.1, step = 0.05;
  int free = 64;
  double crowd = 0.02;

  double StepOf(const LoaderSetting& s) const {
    return step + std::max(0, s.threads - free) * crowd;
  }
  LoaderWindow Window(const LoaderSetting& s) const {
    const double each = load / std::min(s.threads, std::max(1, s.prefetch - 1)), own = StepOf(s);
    LoaderWindow window;
    window.batches = 16;
    window.seconds = 16 * std::max(each, own);
    window.wait_seconds = 16 * std::max(0.0, each - own);
    window.full = each < 0.9 * own ? 16 : 0;
    window.batch_bytes = 1 << 20;
    return window;
  }
};

LoaderSetting After(LoaderTuner* tuner, const Machine& machine, int windows) {
  for (int i = 0; i < windows; ++i) tuner->Decide(machine.Window(tuner->setting()));
  return tuner->setting();
}

TEST(LoaderTuner, LeavesAloneWhatIsFastEnough) {
  LoaderTuner tuner({.cores = 8});
  EXPECT_EQ(tuner.setting(), (LoaderSetting{1, 2}));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(tuner.Decide(Machine{.load = 0.01}.Window(tuner.setting())), "");
  }
  EXPECT_EQ(tuner.setting(), (LoaderSetting{1, 2}));
}

TEST(LoaderTuner, AddsThreadsUntilNobodyWaits) {
  LoaderTuner tuner({.cores = 16});
  const Machine machine{.load = 0.5, .step = 0.1};  // five threads do it
  const LoaderSetting setting = After(&tuner, machine, 20);
  EXPECT_GE(setting.threads, 5);
  EXPECT_LE(setting.threads, 7);
  EXPECT_GT(setting.prefetch, setting.threads);
  EXPECT_EQ(machine.Window(setting).wait_seconds, 0);
}

TEST(LoaderTuner, SaysWhy) {
  LoaderTuner tuner({.cores = 4});
  EXPECT_THAT(tuner.Decide(Machine{.load = 0.06}.Window(tuner.setting())),
              HasSubstr("2 threads, 3 batches ahead: 17 % of the time was spent waiting"));
}

TEST(LoaderTuner, StaysWithinTheCores) {
  for (const int cores : {1, 2, 3}) {
    LoaderTuner tuner({.cores = cores});
    EXPECT_EQ(After(&tuner, {.load = 10}, 200).threads, cores);
  }
}

// More threads only take cores from the step: what was tried is taken back, and tried ever more
// rarely.
TEST(LoaderTuner, TakesBackWhatDoesNotHelp) {
  LoaderTuner tuner({.cores = 8, .bytes = 4 << 20});
  // A disk that gives no more, however many ask.
  const auto window = [](const LoaderSetting& setting) {
    LoaderWindow window;
    window.batches = 16;
    window.seconds = 2 + 0.1 * (setting.threads - 1);
    window.wait_seconds = 1;
    window.batch_bytes = 1 << 20;
    return window;
  };
  int tried = 0;
  std::vector<int> at;
  for (int i = 0; i < 300; ++i) {
    tuner.Decide(window(tuner.setting()));
    if (tuner.setting().threads == 1) continue;
    ++tried;
    at.push_back(i);
    EXPECT_THAT(tuner.Decide(window(tuner.setting())), HasSubstr("more did not help"));
    EXPECT_EQ(tuner.setting().threads, 1);
  }
  EXPECT_GE(tried, 3);
  EXPECT_LE(tried, 12);
  EXPECT_GT(at.back() - at[at.size() - 2], 30);
}

// Two processes whose loaders are both slow are as fast as the slower one: the first to have one
// thread more is not faster, but it waits less, and keeps it.
TEST(LoaderTuner, KeepsWhatHelpsOnceTheOthersFollow) {
  LoaderTuner tuner({.cores = 4});
  LoaderWindow window{.batches = 16, .seconds = 2, .wait_seconds = 1, .batch_bytes = 1 << 10};
  tuner.Decide(window);
  const LoaderSetting more = tuner.setting();
  EXPECT_GT(more.threads, 1);
  window.wait_seconds = 0.01;  // it waits for the other process instead
  EXPECT_EQ(tuner.Decide(window), "");
  EXPECT_EQ(tuner.setting(), more);
}

TEST(LoaderTuner, TakesMoreAheadWhereWaitsComeInBursts) {
  LoaderTuner tuner({.cores = 4});
  LoaderWindow window{
      .batches = 16, .full = 12, .seconds = 2, .wait_seconds = 0.5, .batch_bytes = 1 << 20};
  EXPECT_NE(tuner.Decide(window), "");
  EXPECT_EQ(tuner.setting(), (LoaderSetting{1, 4}));
}

TEST(LoaderTuner, BoundsWhatIsAheadByMemory) {
  for (const int replicas : {1, 4}) {
    LoaderTuner tuner({.cores = 64, .replicas = replicas, .bytes = int64_t{64} << 20});
    LoaderWindow window{
        .batches = 64, .full = 30, .seconds = 8, .wait_seconds = 2, .batch_bytes = 4 << 20};
    for (int i = 0; i < 40; ++i) {
      // Each trial seems to help.
      window.seconds *= 0.9;
      window.wait_seconds *= 0.8;
      tuner.Decide(window);
      EXPECT_LE(tuner.setting().prefetch * replicas * window.batch_bytes, int64_t{64} << 20);
    }
    EXPECT_EQ(tuner.setting().prefetch, 16 / replicas);
  }
  // Two batches are ahead for every size.
  LoaderTuner tuner({.cores = 2, .bytes = 1});
  EXPECT_EQ(After(&tuner, {.load = 1}, 30).prefetch, 2);
}

TEST(LoaderTuner, GivesThreadsBack) {
  LoaderTuner tuner({.cores = 8});
  EXPECT_GE(After(&tuner, {.load = 0.4, .step = 0.1}, 20).threads, 4);
  // The data has come into the page cache, say.
  EXPECT_EQ(After(&tuner, {.load = 0.01, .step = 0.1}, 100).threads, 1);
}

TEST(LoaderTuner, DoesNotSwingBetweenTwoSettings) {
  LoaderTuner tuner({.cores = 8});
  const Machine machine{.load = 0.17, .step = 0.1};
  After(&tuner, machine, 20);
  int changes = 0;
  for (int i = 0; i < 1000; ++i) changes += !tuner.Decide(machine.Window(tuner.setting())).empty();
  EXPECT_LE(changes, 40);
  EXPECT_EQ(tuner.setting().threads, 2);
}

TEST(LoaderTuner, ObeysTheJob) {
  LoaderTuner both({.threads = 3, .prefetch = 5, .cores = 2});
  EXPECT_TRUE(both.fixed());
  EXPECT_EQ(both.setting(), (LoaderSetting{3, 5}));
  EXPECT_EQ(After(&both, {.load = 10}, 20), (LoaderSetting{3, 5}));

  LoaderTuner threads({.threads = 3, .cores = 8});
  EXPECT_FALSE(threads.fixed());
  EXPECT_EQ(threads.setting(), (LoaderSetting{3, 4}));
  EXPECT_EQ(After(&threads, {.load = 10}, 20).threads, 3);
  EXPECT_EQ(After(&threads, {.load = 0.001}, 60).threads, 3);

  LoaderTuner prefetch({.prefetch = 1, .cores = 8});
  EXPECT_EQ(prefetch.setting(), (LoaderSetting{1, 1}));
  EXPECT_EQ(After(&prefetch, {.load = 10}, 20), (LoaderSetting{1, 1}));  // a second one has no work
  LoaderTuner replicas({.threads = 8, .prefetch = 1, .replicas = 3});
  EXPECT_EQ(replicas.setting(), (LoaderSetting{3, 1}));
}

TEST(LoaderTuner, FixedThreadsLoadNoMoreAheadThanMemoryHolds) {
  LoaderTuner threads({.threads = 8, .cores = 8, .bytes = int64_t{64} << 20});
  EXPECT_EQ(threads.setting(), (LoaderSetting{8, 9}));
  EXPECT_EQ(threads.Fit(1 << 20), "");
  EXPECT_EQ(threads.Fit(16 << 20), "8 threads, 4 batches ahead: a batch has 16 MiB");
  EXPECT_EQ(threads.setting(), (LoaderSetting{8, 4}));
  EXPECT_NE(threads.Fit(int64_t{1} << 40), "");
  EXPECT_EQ(threads.setting(), (LoaderSetting{8, 2}));
  LoaderTuner both({.threads = 8, .prefetch = 9, .bytes = 1});
  EXPECT_EQ(both.Fit(int64_t{1} << 40), "");
  EXPECT_EQ(both.setting(), (LoaderSetting{8, 9}));
}

TEST(LoaderTuner, DecidesByEnoughBatches) {
  const LoaderTuner tuner({.replicas = 2});
  EXPECT_FALSE(tuner.Complete({.batches = 1000, .seconds = 0.1}));
  EXPECT_FALSE(tuner.Complete({.batches = 15, .seconds = 1}));
  EXPECT_TRUE(tuner.Complete({.batches = 16, .seconds = 1}));
  EXPECT_FALSE(tuner.Complete({.batches = 3, .seconds = 100}));
  EXPECT_TRUE(tuner.Complete({.batches = 4, .seconds = 10}));
}

TEST(LoaderTuner, NothingMeasuredDecidesNothing) {
  LoaderTuner tuner({.cores = 4});
  EXPECT_EQ(tuner.Decide({}), "");
  EXPECT_EQ(tuner.setting(), (LoaderSetting{1, 2}));
}

}  // namespace
}  // namespace muster::data
