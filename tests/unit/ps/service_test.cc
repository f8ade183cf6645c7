#include "ps/service.h"

#include <atomic>
#include <thread>

#include "tests/unit/base/becomes.h"
#include "tests/unit/ps/ps_cluster.h"

namespace muster::ps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Stub = proto::ParameterServer::Stub;

constexpr uint64_t kView = 1ull << 32 | 1;

std::string Text(const absl::Status& status) { return std::string(Message(status)); }

// Two ps tasks with one shard each, and no backups.
class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() {
    for (int task : {0, 1}) ps_.push_back(MakePs(task));
  }
  static std::unique_ptr<TestPs> MakePs(int task) {
    PsServiceOptions options;
    options.task = task;
    return std::make_unique<TestPs>(options);
  }
  proto::View View(uint64_t number = kView) {
    proto::View view;
    view.set_number(number);
    view.set_ticket("ticket");
    for (int task : {0, 1}) {
      proto::ShardPlace& place = *view.add_shards();
      place.set_shard(task);
      place.set_primary(task);
      place.set_primary_address(ps_[task]->address());
      place.set_backup(-1);
    }
    return view;
  }
  void Begin(float value = 10) {
    for (int task : {0, 1}) {
      ASSERT_TRUE(ps_[task]->Create(job_.Create(task)).ok());
      const auto filled = ps_[task]->Fill(Content(job_, task, value));
      ASSERT_TRUE(filled.ok()) << filled.status();
      EXPECT_THAT(filled->serving(), ElementsAre(task));
      ASSERT_TRUE(ps_[task]->SetView(View()).ok());
      ASSERT_TRUE(ps_[task]->SetWorkers({{0, kLife}, {1, kLife + 1}}, 1).ok());
    }
  }

  TestJob job_;
  std::vector<std::unique_ptr<TestPs>> ps_;
};

TEST_F(ServiceTest, WhatIsPushedIsPulledCutReadAndFilledAgain) {
  job_.optimizer = R"({"name": "sgd", "momentum": 0.5})";
  Begin();
  TestWorker worker(0, kLife, job_);
  ASSERT_TRUE(worker.Connect(View()).ok());
  for (int shard : {0, 1}) {
    auto transfers = worker.Transfers(shard, 1);
    ASSERT_TRUE(worker.Push(shard, 1, transfers).ok());
    for (const push_pull::ChunkTransfer& t : transfers) EXPECT_THAT(t.parameters, Each(9));
    transfers = worker.Transfers(shard, 1);
    ASSERT_TRUE(worker.Push(shard, 2, transfers).ok());
    EXPECT_THAT(*worker.Pull(shard), Each(7.5));
  }
  const auto cut = ps_[1]->Cut("a");
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_THAT(cut->shards(), ElementsAre(1));
  // The copy stays as it is while training continues.
  auto transfers = worker.Transfers(1, 1);
  ASSERT_TRUE(worker.Push(1, 3, transfers).ok());
  const auto chunks = ps_[1]->Read("a", 1);
  ASSERT_TRUE(chunks.ok()) << chunks.status();
  ASSERT_EQ(chunks->size(), job_.layout().chunks[1].size());
  for (const proto::ChunkContent& chunk : *chunks) {
    EXPECT_EQ(chunk.updates(), 2);
    EXPECT_EQ(chunk.slots_size(), 1);
    EXPECT_EQ(chunk.last().at(0).sequence(), 2u);
  }
  EXPECT_EQ(ps_[1]->Beat()->updates(), 3);

  // Another process continues from this copy, and knows the pushes in it.
  ps_[1] = MakePs(1);
  ASSERT_TRUE(ps_[1]->Create(job_.Create(1)).ok());
  ASSERT_TRUE(ps_[1]->Fill(*chunks).ok());
  ASSERT_TRUE(ps_[1]->SetWorkers({{0, kLife}}, 1).ok());
  ASSERT_TRUE(ps_[0]->SetView(View(kView + 1)).ok());
  ASSERT_TRUE(ps_[1]->SetView(View(kView + 1)).ok());
  ASSERT_TRUE(worker.Connect(View(kView + 1)).ok());
  EXPECT_THAT(*worker.Pull(1), Each(7.5));
  transfers = worker.Transfers(1, 1);
  ASSERT_TRUE(worker.Push(1, 2, transfers).ok());
  EXPECT_FALSE(transfers[0].result.applied) << "it was in the copy";
  transfers = worker.Transfers(1, 1);
  ASSERT_TRUE(worker.Push(1, 3, transfers).ok());
  EXPECT_THAT(transfers[0].parameters, Each(5.75)) << "its momentum came along";
}

TEST_F(ServiceTest, CopiesAreReplacedAndForgotten) {
  Begin(1);
  ASSERT_TRUE(ps_[0]->Cut("a").ok());
  ASSERT_TRUE(ps_[0]->Fill(Content(job_, 0, 2)).ok());
  EXPECT_EQ(ps_[0]->Read("a", 0)->front().parameters(), Content(job_, 0, 1)[0].parameters());
  ASSERT_TRUE(ps_[0]->Cut("a").ok());
  EXPECT_EQ(ps_[0]->Read("a", 0)->front().parameters(), Content(job_, 0, 2)[0].parameters());
  EXPECT_THAT(Text(ps_[0]->Read("a", 1).status()), HasSubstr("no copy \"a\" of shard 1"));
  ASSERT_TRUE(ps_[0]->Cut("c").ok());
  EXPECT_FALSE(ps_[0]->Read("a", 0).ok()) << "the chief could not drop it";
  ASSERT_TRUE(ps_[0]->Cut("a").ok());
  ASSERT_TRUE(ps_[0]->Drop("a").ok());
  EXPECT_THAT(Text(ps_[0]->Read("a", 0).status()), HasSubstr("no copy \"a\" of shard 0"));
  ASSERT_TRUE(ps_[0]->Cut("b").ok());
  ASSERT_TRUE(ps_[0]->Beat("", 2).ok());  // a new chief
  EXPECT_FALSE(ps_[0]->Read("b", 0).ok());
}

TEST_F(ServiceTest, AnEmptyServerRefusesToServe) {
  for (int task : {0, 1}) {
    const auto created = ps_[task]->Create(job_.Create(task));
    ASSERT_TRUE(created.ok());
    EXPECT_THAT(created->serving(), ElementsAre());
    ASSERT_TRUE(ps_[task]->SetView(View()).ok());
    ASSERT_TRUE(ps_[task]->SetWorkers({{0, kLife}}, 1).ok());
  }
  TestWorker worker(0, kLife, job_);
  ASSERT_TRUE(worker.Connect(View()).ok());
  const absl::Status empty = worker.Pull(0).status();
  EXPECT_TRUE(absl::IsUnavailable(empty)) << empty;
  EXPECT_THAT(Text(empty), HasSubstr("chunks hold nothing yet"));
  EXPECT_TRUE(absl::IsUnavailable(ps_[0]->Cut("a").status()));
  // Filled in the middle of a view it serves at once.
  std::vector<proto::ChunkContent> content = Content(job_, 0, 3);
  const proto::ChunkContent last = content.back();
  content.pop_back();
  EXPECT_THAT(ps_[0]->Fill(content)->serving(), ElementsAre());
  EXPECT_THAT(ps_[0]->Fill({last})->serving(), ElementsAre(0));
  ASSERT_TRUE(worker.Connect(View()).ok());
  EXPECT_THAT(*worker.Pull(0), Each(3));
}

TEST_F(ServiceTest, ARestartedChiefFindsWhatThereIs) {
  Begin();
  ASSERT_TRUE(ps_[0]->Beat("first").ok());
  ASSERT_TRUE(ps_[0]->Beat("second").ok());
  ASSERT_TRUE(ps_[0]->Beat("").ok());
  TestWorker worker(0, kLife, job_);
  ASSERT_TRUE(worker.Connect(View()).ok());
  uint64_t sequence = 0;
  for (const int64_t lease : {7, 6}) {
    auto transfers = worker.Transfers(0, 1);
    ASSERT_TRUE(worker.Push(0, ++sequence, transfers, lease).ok());
  }
  proto::CreateRequest again = job_.Create(0);
  again.set_epoch(2);
  const auto created = ps_[0]->Create(again);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(created->record(), "second");
  EXPECT_EQ(created->view(), kView);
  EXPECT_THAT(created->serving(), ElementsAre(0));
  EXPECT_EQ(created->newest_lease(), 7);
  // Another run's state is worthless.
  again.set_run_id("run-2");
  const auto other = ps_[0]->Create(again);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->record(), "");
  EXPECT_EQ(other->view(), 0u);
  EXPECT_THAT(other->serving(), ElementsAre());
  EXPECT_EQ(other->newest_lease(), 0);
}

TEST_F(ServiceTest, ASupersededChiefIsRefused) {
  Begin();
  ASSERT_TRUE(ps_[0]->Beat("record", 3).ok());
  const auto expect_refused = [](const absl::Status& status) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(Text(status), HasSubstr("epoch 3 was here"));
  };
  expect_refused(ps_[0]->Create(job_.Create(0)).status());
  expect_refused(ps_[0]->SetView(View(kView + 9)));
  expect_refused(ps_[0]->SetWorkers({}, 9).status());
  expect_refused(ps_[0]->Fill(Content(job_, 0, 5)).status());
  expect_refused(ps_[0]->Cut("a").status());
  expect_refused(ps_[0]->Read("a", 0).status());
  expect_refused(ps_[0]->Drop("a"));
  expect_refused(ps_[0]->Beat("old").status());
  EXPECT_EQ(ps_[0]->Beat("", 3)->view(), kView);
}

// Going along with it would shut out the chief of now and all that come after it.
TEST_F(ServiceTest, AnEpochThatNoRunHasReachedIsRefused) {
  Begin();
  const auto expect_refused = [](const absl::Status& status) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Text(status), HasSubstr("one of epoch 1 was here: no run has had so many chiefs"));
  };
  for (const uint32_t term : {0xffffffffu, 0xfffffffeu, 1u << 31, 1'000'002u}) {
    expect_refused(ps_[0]->Beat("made up", term).status());
    proto::CreateRequest create = job_.Create(0);
    create.set_epoch(term);
    create.set_run_id("run-2");
    expect_refused(ps_[0]->Create(create).status());
  }
  EXPECT_EQ(ps_[0]->Beat("")->view(), kView) << "the current chief is still served";
  EXPECT_TRUE(ps_[0]->Beat("", 1'000'001).ok());
}

// It was frozen in the middle of a Fill, and wakes.
TEST_F(ServiceTest, ASupersededChiefFillsNothingMore) {
  Begin();
  proto::FillReply reply;
  const auto context = rpc::WithDeadline(kLong);
  const auto writer = ps_[0]->stub().Fill(context.get(), &reply);
  const std::vector<proto::ChunkContent> content = Content(job_, 0, 5);
  const auto write = [&](size_t chunk) {
    proto::FillRequest request;
    request.set_epoch(1);
    *request.mutable_chunk() = content[chunk];
    writer->Write(request);
  };
  const auto parameters = [&](size_t chunk, uint32_t term) {
    EXPECT_TRUE(ps_[0]->Cut("now", term).ok());
    return ps_[0]->Read("now", 0, term)->at(chunk).parameters();
  };
  write(0);
  ASSERT_TRUE(
      testing_support::Becomes([&] { return parameters(0, 1) == content[0].parameters(); }));
  ASSERT_TRUE(ps_[0]->Beat("", 2).ok());
  write(1);
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("epoch 2 was here"));
  EXPECT_TRUE(parameters(1, 2) == Content(job_, 0, 10)[1].parameters());
}

TEST_F(ServiceTest, WhatDoesNotFitIsRefusedWithASentence) {
  const absl::Status early = ps_[0]->SetView(View());
  EXPECT_THAT(Text(early), HasSubstr("SetView came before Create"));
  EXPECT_TRUE(absl::IsUnavailable(early)) << "not that the chief is superseded: " << early;
  Begin();
  const auto expect_invalid = [](const absl::Status& status, const std::string& sentence) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Text(status), HasSubstr(sentence));
  };
  // Create.
  TestJob other = job_;
  other.variables[0].shape = {20, 10};
  expect_invalid(ps_[0]->Create(other.Create(0)).status(),
                 "the shape of w: [40, 10] here, [20, 10] there");
  other = job_;
  other.parameter_server = R"({"chunk_bytes": 128})";
  expect_invalid(ps_[0]->Create(other.Create(0)).status(), "divided in another way");
  other = job_;
  other.optimizer = R"("adam")";
  expect_invalid(ps_[0]->Create(other.Create(0)).status(), "another optimizer 0");
  // Requests with more optimizers than the shards were created with, and with fewer.
  proto::CreateRequest more = job_.Create(0);
  more.add_optimizers(job_.optimizer);
  expect_invalid(ps_[0]->Create(more).status(), "1 optimizers of run run-1, not 2");
  {
    const auto ps = MakePs(0);
    ASSERT_TRUE(ps->Create(more).ok());
    expect_invalid(ps->Create(job_.Create(0)).status(), "2 optimizers of run run-1, not 1");
  }
  other.optimizer = R"("adamm")";
  expect_invalid(ps_[0]->Create(other.Create(0)).status(), "adamm");
  expect_invalid(ps_[0]->Create(job_.Create(1)).status(), "takes this process for ps 1");
  proto::CreateRequest wrong = job_.Create(0);
  wrong.set_digest("0");
  expect_invalid(ps_[0]->Create(wrong).status(), "digest 0 there");
  wrong = job_.Create(0);
  wrong.mutable_variables(0)->set_optimizer(1);
  expect_invalid(ps_[0]->Create(wrong).status(), "w belongs to optimizer 1");
  // Views.
  proto::View view = View(kView + 1);
  view.mutable_shards()->RemoveLast();
  expect_invalid(ps_[0]->SetView(view), "places 1 shards, not 2");
  view = View(kView + 1);
  view.mutable_shards(1)->set_shard(0);
  expect_invalid(ps_[0]->SetView(view), "shard 0 twice");
  view = View(kView + 1);
  view.mutable_shards(1)->set_backup(1);
  expect_invalid(ps_[0]->SetView(view), "gives shard 1 to ps 1 and ps 1");
  view = View(kView + 1);
  view.set_ticket(std::string(33, 'x'));
  expect_invalid(ps_[0]->SetView(view), "33 bytes");
  view = View();
  view.set_ticket("other");
  expect_invalid(ps_[0]->SetView(view), "two different views");
  const absl::Status older = ps_[0]->SetView(View(kView - 1));
  EXPECT_TRUE(absl::IsFailedPrecondition(older)) << older;
  EXPECT_TRUE(ps_[0]->SetView(View()).ok()) << "the same one again";
  // State.
  proto::ChunkContent chunk = Content(job_, 0, 5)[0];
  chunk.set_shard(2);
  expect_invalid(ps_[0]->Fill({chunk}).status(), "no shard 2");
  chunk.set_shard(0);
  chunk.set_chunk(99);
  expect_invalid(ps_[0]->Fill({chunk}).status(), "shard 0 has no chunk 99");
  chunk.set_chunk(0);
  chunk.set_parameters(std::string(7, 'x'));
  expect_invalid(ps_[0]->Fill({chunk}).status(), "7 bytes");
  chunk.set_parameters(std::string(8, 'x'));
  expect_invalid(ps_[0]->Fill({chunk}).status(), "chunk 0 has 64 elements, not 2");
  chunk = Content(job_, 0, 5)[0];
  chunk.add_slots(chunk.parameters());
  expect_invalid(ps_[0]->Fill({chunk}).status(), "chunk 0 has 0 slots, not 1");
  chunk.clear_slots();
  chunk.set_updates(-1);
  expect_invalid(ps_[0]->Fill({chunk}).status(), "-1 updates");
  expect_invalid(ps_[0]->Fill({}).status(), "no chunk at all");
  chunk = Content(job_, 0, 5)[0];
  chunk.set_more(true);
  expect_invalid(ps_[0]->Fill({chunk}).status(), "shard 0, chunk 0 lacks elements");
  expect_invalid(ps_[0]->Cut("").status(), "needs a name");
  // Without a deadline.
  grpc::ClientContext context;
  proto::BeatReply reply;
  EXPECT_THAT(ps_[0]->stub().Beat(&context, {}, &reply).error_message(), HasSubstr("deadline"));
  // Nothing of it left a trace.
  TestWorker worker(0, kLife, job_);
  ASSERT_TRUE(worker.Connect(View()).ok());
  EXPECT_THAT(*worker.Pull(0), Each(10));
}

TEST_F(ServiceTest, WorkersOfAnotherViewLayoutOrTicketAreRefused) {
  Begin();
  TestWorker worker(0, kLife, job_);
  TestJob job = job_;
  job.variables[0].shape = {20, 20};
  TestWorker stranger(0, kLife, job);
  ASSERT_TRUE(stranger.Connect(View()).ok());
  EXPECT_THAT(Text(stranger.Pull(0).status()), HasSubstr("has other variables"));
  proto::View other = View();
  other.set_ticket("guess");
  EXPECT_FALSE(worker.Dial(other, other.shards(0)).ok());
  // A shard that is elsewhere.
  other = View();
  other.mutable_shards(1)->set_primary_address(ps_[0]->address());
  ASSERT_TRUE(worker.Connect(other).ok());
  EXPECT_THAT(Text(worker.Pull(1).status()), HasSubstr("ps 0 does not serve shard 1"));
  // A new view ends the connections of the old one, and refuses new ones.
  ASSERT_TRUE(worker.Connect(View()).ok());
  EXPECT_TRUE(worker.Pull(0).ok());
  for (int task : {0, 1}) ASSERT_TRUE(ps_[task]->SetView(View(kView + 1)).ok());
  EXPECT_FALSE(worker.Pull(0).ok());
  EXPECT_THAT(Text(worker.Connect(View())), HasSubstr("left this generation"));
  ASSERT_TRUE(worker.Connect(View(kView + 1)).ok());
  EXPECT_TRUE(worker.Pull(0).ok());
  EXPECT_EQ(ps_[0]->service->status().connections, 1);
}

TEST(LongestChiefSilence, EndsBeforeTheChiefGivesTheServerUpInEitherWay) {
  using std::chrono::milliseconds, std::chrono::seconds;
  EXPECT_EQ(LongestChiefSilence(seconds(4), seconds(1)), seconds(3)) << "no heartbeat";
  EXPECT_EQ(LongestChiefSilence(seconds(60), seconds(1)), seconds(5))
      << "a session that has broken";
  EXPECT_EQ(LongestChiefSilence(seconds(60), seconds(20)), seconds(24));
  EXPECT_EQ(LongestChiefSilence(seconds(1), seconds(1)), milliseconds(1500))
      << "it asks every second";
}

constexpr Duration kChiefSilence = std::chrono::milliseconds(300);

TEST_F(ServiceTest, APushWaitsWhileTheChiefIsSilent) {
  PsServiceOptions options;
  options.chief_silence = kChiefSilence;
  ps_[0] = std::make_unique<TestPs>(options);
  Begin();
  TestWorker worker(0, kLife, job_);
  ASSERT_TRUE(worker.Connect(View()).ok());
  std::atomic<bool> speaks = true;
  const auto speak = [&] {
    while (speaks) EXPECT_TRUE(ps_[0]->Beat().ok());
  };
  std::thread chief(speak);
  auto transfers = worker.Transfers(0, 1);
  EXPECT_TRUE(worker.Push(0, 1, transfers).ok()) << "a chief that is heard";
  speaks = false;
  chief.join();
  const MonotonicTime heard = Clock::now();
  while (Clock::now() < heard + kChiefSilence) std::this_thread::yield();
  std::atomic<bool> over = false;
  std::thread pushing([&] {
    auto later = worker.Transfers(0, 1);
    EXPECT_TRUE(worker.Push(0, 2, later).ok());
    over = true;
  });
  while (Clock::now() < heard + 2 * kChiefSilence) std::this_thread::yield();
  EXPECT_FALSE(over) << "the chief is silent";
  // The push continues after the beat, so the answer of the beat may or may not count it.
  speaks = true;
  chief = std::thread(speak);
  pushing.join();
  speaks = false;
  chief.join();
  EXPECT_EQ(ps_[0]->Beat()->updates(), 2);
}

TEST_F(ServiceTest, AWorkerLearnsThatTheChiefIsSilentForEver) {
  PsServiceOptions options;
  options.chief_silence = options.new_view = kChiefSilence;
  ps_[0] = std::make_unique<TestPs>(options);
  Begin();
  TestWorker worker(0, kLife, job_);
  ASSERT_TRUE(worker.Connect(View()).ok());
  std::this_thread::sleep_for(2 * kChiefSilence);
  auto transfers = worker.Transfers(0, 1);
  EXPECT_THAT(Text(worker.Push(0, 1, transfers)), HasSubstr("has not heard from the chief for"));
}

TEST_F(ServiceTest, LostWorkersAreRefused) {
  Begin();
  TestWorker lost(0, kLife, job_), other(1, kLife + 1, job_);
  ASSERT_TRUE(lost.Connect(View()).ok());
  ASSERT_TRUE(other.Connect(View()).ok());
  auto transfers = lost.Transfers(0, 1);
  auto whole = transfers;
  transfers.resize(1);  // the rest never comes
  ASSERT_TRUE(lost.Push(0, 1, transfers).ok());
  ASSERT_TRUE(ps_[0]->SetWorkers({{1, kLife + 1}}, 2).ok());
  ASSERT_TRUE(ps_[0]->SetWorkers({{0, kLife}, {1, kLife + 1}}, 1).ok()) << "an old call";
  const absl::Status late = lost.Push(0, 1, whole);
  EXPECT_TRUE(absl::IsAborted(late)) << late;
  EXPECT_THAT(Text(late), HasSubstr("worker 0 was lost"));
  transfers = other.Transfers(0, 1);
  EXPECT_TRUE(other.Push(0, 1, transfers).ok());
  // Its successor counts from 1 again.
  ASSERT_TRUE(ps_[0]->SetWorkers({{0, kLife + 2}, {1, kLife + 1}}, 3).ok());
  TestWorker again(0, kLife + 2, job_);
  ASSERT_TRUE(again.Connect(View()).ok());
  transfers = again.Transfers(0, 1);
  EXPECT_TRUE(again.Push(0, 1, transfers).ok());
  EXPECT_THAT(transfers[0].parameters, Each(7));
  EXPECT_THAT(transfers[1].parameters, Each(8));
}

}  // namespace
}  // namespace muster::ps
