// A worker's questions to a chief that answers by a script.
#include "worker/parameter_server/lease_client.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <deque>
#include <set>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "common/rpc/server/server.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/unit/base/becomes.h"

namespace muster::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

proto::NextReply EvaluationPart(int64_t id) {
  proto::NextReply reply;
  reply.mutable_lease()->set_id(id);
  reply.mutable_lease()->set_begin(id * 10);
  reply.mutable_lease()->set_end(id * 10 + 10);
  reply.mutable_lease()->mutable_evaluation();
  return reply;
}

proto::NextReply Batch(int64_t id, bool wait = false) {
  proto::NextReply reply = EvaluationPart(id);
  reply.mutable_lease()->mutable_training()->set_wait(wait);
  return reply;
}

proto::NextReply Start(int64_t id) {
  proto::NextReply reply;
  reply.mutable_start()->set_lease(id);
  return reply;
}

// Answers questions for work in their order, and holds those for which there is no answer yet.
// While `idle`, it answers these that there is none.
class Chief final : public proto::Leases::Service {
 public:
  grpc::Status Next(grpc::ServerContext* context, const proto::NextRequest* request,
                    proto::NextReply* reply) override {
    absl::MutexLock lock(&mutex);
    if (away) {
      ++turned_away;
      changed.SignalAll();
      return {grpc::StatusCode::UNAVAILABLE, "not ready yet"};
    }
    if (!refusal.empty()) return {grpc::StatusCode::INVALID_ARGUMENT, refusal};
    const bool tells = request->want() == 0 && request->start() == 0;
    if (tells) ++hearing;
    changed.SignalAll();
    while (tells && slow_to_hear && !context->IsCancelled())
      changed.WaitWithTimeout(&mutex, absl::Milliseconds(20));
    requests.push_back(*request);
    for (const proto::BatchDone& batch : request->done()) done.push_back(batch.lease());
    for (const proto::EvaluationDone& part : request->evaluated())
      evaluated.push_back(part.lease());
    changed.SignalAll();
    if (tells) return grpc::Status::OK;
    while (answers.empty() && !idle && !away && !context->IsCancelled())
      changed.WaitWithTimeout(&mutex, absl::Milliseconds(20));
    if (answers.empty() && idle) {
      reply->mutable_wait();
      return grpc::Status::OK;
    }
    if (answers.empty()) return {grpc::StatusCode::UNAVAILABLE, "going away"};
    *reply = answers.front();
    answers.pop_front();
    return grpc::Status::OK;
  }
  grpc::Status Tell(grpc::ServerContext* context, grpc::ServerReader<proto::TellPiece>* reader,
                    proto::NextReply* reply) override {
    std::string all;
    proto::TellPiece piece;
    while (reader->Read(&piece)) all += piece.data();
    proto::NextRequest request;
    EXPECT_EQ(all.size(), static_cast<size_t>(piece.bytes()));
    EXPECT_TRUE(request.ParseFromString(all));
    EXPECT_EQ(request.want(), 0);
    EXPECT_EQ(request.start(), 0);
    const grpc::Status status = Next(context, &request, reply);
    absl::MutexLock lock(&mutex);
    if (status.ok()) largest_report = std::max(largest_report, all.size());
    return status;
  }
  grpc::Status GetView(grpc::ServerContext*, const proto::GetViewRequest* request,
                       proto::GetViewReply* reply) override {
    absl::MutexLock lock(&mutex);
    if (away) return {grpc::StatusCode::UNAVAILABLE, "not ready yet"};
    if (abandon) reply->set_abandon(true);
    if (!views.empty() && views.front().number() > request->newer_than()) {
      *reply->mutable_view() = views.front();
      views.pop_front();
    }
    return grpc::Status::OK;
  }

  void Answer(proto::NextReply reply) {
    absl::MutexLock lock(&mutex);
    answers.push_back(std::move(reply));
    changed.SignalAll();
  }
  void SetIdle(bool value) {
    absl::MutexLock lock(&mutex);
    idle = value;
    changed.SignalAll();
  }
  template <typename Condition>
  bool Await(const Condition& condition, absl::Duration limit = absl::Minutes(1)) {
    absl::MutexLock lock(&mutex);
    const absl::Time deadline = absl::Now() + limit;
    while (!condition())
      if (changed.WaitWithDeadline(&mutex, deadline)) return condition();
    return true;
  }

  absl::Mutex mutex;
  absl::CondVar changed;
  std::deque<proto::NextReply> answers;
  std::deque<proto::View> views;
  bool away = false, abandon = false, slow_to_hear = false, idle = false;
  int turned_away = 0, hearing = 0;
  size_t largest_report = 0;  // in pieces
  std::string refusal;
  std::vector<proto::NextRequest> requests;
  std::vector<int64_t> done, evaluated;
};

class LeaseClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    rpc::ServerOptions options;
    options.address = "127.0.0.1:0";
    auto server = rpc::Server::Start(options, {&chief_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    client_.reset();
    server_->Shutdown(std::chrono::milliseconds(100));
  }
  void Begin(int ahead) {
    LeaseClientOptions options;
    options.chief_address = fmt::format("127.0.0.1:{}", server_->port());
    options.worker = 1;
    options.incarnation = 77;
    options.digest = "abc";
    options.variables = {{"net.w", {3, 2}, 0, {}}};
    options.ahead = ahead;
    options.depth = depth_;
    options.patience = patience_;
    options.channel.retry.max = std::chrono::milliseconds(50);
    options.channel.retry.initial = std::chrono::milliseconds(10);
    options.load = [this](const proto::Lease& lease) -> absl::StatusOr<std::shared_ptr<void>> {
      absl::MutexLock lock(&chief_.mutex);
      loaded_.push_back(lease.id());
      chief_.changed.SignalAll();
      while (lease.id() == slow_) chief_.changed.Wait(&chief_.mutex);
      if (lease.id() == bad_) return DataError("record 7 is damaged");
      return std::make_shared<int64_t>(lease.id());
    };
    auto client = LeaseClient::Make(std::move(options));
    ASSERT_TRUE(client.ok());
    client_ = *std::move(client);
  }
  int64_t Take() {
    const auto work = client_->Take();
    EXPECT_TRUE(work.ok()) << work.status();
    if (!work.ok()) return -1;
    if (work->done) return 0;
    EXPECT_EQ(*static_cast<int64_t*>(work->examples.get()), work->lease->id());
    return work->lease->id();
  }
  // Waits until this many leases are loaded and not taken. Before another call of the client
  // begins, its thread has then decided what it does next.
  ::testing::AssertionResult AwaitReady(int64_t leases) const {
    if (testing_support::Becomes([&] { return depth_->ready == leases; }))
      return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << depth_->ready << " leases are loaded";
  }
  void Complete(int64_t lease) {
    proto::BatchDone done;
    done.set_lease(lease);
    client_->Complete(done);
  }

  Duration patience_ = std::chrono::minutes(1);
  int64_t bad_ = -1, slow_ = -1;  // leases
  const std::shared_ptr<data::QueueDepth> depth_ = std::make_shared<data::QueueDepth>();
  std::vector<int64_t> loaded_;
  Chief chief_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<LeaseClient> client_;
};

TEST_F(LeaseClientTest, OneLeaseIsLoadedAheadAndWhatIsDoneGoesWithTheNextQuestion) {
  for (int64_t lease = 1; lease <= 3; ++lease) chief_.Answer(Batch(lease));
  Begin(1);
  EXPECT_EQ(Take(), 1);
  ASSERT_TRUE(AwaitReady(1));
  Complete(1);
  EXPECT_EQ(Take(), 2);
  ASSERT_TRUE(chief_.Await([&] { return loaded_.size() == 3; }));
  // A question of the time before Complete would have come before the third lease was loaded.
  absl::MutexLock lock(&chief_.mutex);
  ASSERT_EQ(chief_.requests.size(), 3u) << "two leases are enough";
  EXPECT_EQ(chief_.requests[0].digest(), "abc");
  EXPECT_EQ(chief_.requests[0].variables(0).name(), "net.w");
  EXPECT_EQ(chief_.requests[0].worker().incarnation(), 77u);
  EXPECT_TRUE(chief_.requests[1].digest().empty());
  EXPECT_THAT(chief_.requests[1].held(), ElementsAre(1));
  EXPECT_THAT(chief_.requests[2].held(), ElementsAre(2));
  ASSERT_EQ(chief_.requests[2].done_size(), 1);
  EXPECT_EQ(chief_.requests[2].done(0).lease(), 1);
  EXPECT_THAT(chief_.done, ElementsAre(1));
}

// The client holds several short batches, but no more examples than with long ones.
TEST_F(LeaseClientTest, ShortBatchesAreRequestedAndReportedTogether) {
  for (int64_t lease = 1; lease <= 10; ++lease) chief_.Answer(Batch(lease));
  Begin(1);
  for (int64_t lease = 1; lease <= 10; ++lease) {
    EXPECT_EQ(Take(), lease);
    Complete(lease);
  }
  const auto questions = [&] {
    return std::count_if(chief_.requests.begin(), chief_.requests.end(),
                         [](const proto::NextRequest& request) { return request.want() > 0; });
  };
  // A batch that completes during a call is reported at once. This report repeats the batches of
  // the call, so the chief may receive a batch twice.
  const auto reported = [&] { return std::set(chief_.done.begin(), chief_.done.end()).size(); };
  ASSERT_TRUE(chief_.Await([&] { return reported() == 10 && questions() == 11; }));
  {
    absl::MutexLock lock(&chief_.mutex);
    EXPECT_TRUE(std::any_of(chief_.requests.begin(), chief_.requests.end(),
                            [](const proto::NextRequest& request) { return request.want() > 1; }));
  }
  proto::NextReply several = Batch(11);
  for (int64_t lease = 12; lease <= 15; ++lease) *several.add_more() = Batch(lease).lease();
  chief_.Answer(several);
  EXPECT_EQ(Take(), 11);
  ASSERT_TRUE(chief_.Await([&] { return loaded_.size() == 12; }));
  EXPECT_FALSE(chief_.Await([&] { return loaded_.size() > 12; }, absl::Milliseconds(50)));
  Complete(11);
  for (int64_t lease = 12; lease <= 13; ++lease) {
    EXPECT_EQ(Take(), lease);
    Complete(lease);
  }
  // Others may wait for these; nothing more is wanted yet.
  ASSERT_TRUE(chief_.Await([&] { return reported() == 13; }));
  {
    absl::MutexLock lock(&chief_.mutex);
    EXPECT_EQ(questions(), 11);
    EXPECT_THAT(chief_.requests.back().held(), ElementsAre(14, 15));
  }
  EXPECT_EQ(Take(), 14);
  Complete(14);
  ASSERT_TRUE(chief_.Await([&] { return questions() == 12; }));
  EXPECT_EQ(Take(), 15);
  absl::MutexLock lock(&chief_.mutex);
  EXPECT_EQ(loaded_.size(), 15u);
}

TEST_F(LeaseClientTest, WithoutALeadTheNextOneIsAskedForWhenThisOneIsDone) {
  chief_.Answer(Batch(1));
  chief_.Answer(Batch(2));
  Begin(0);
  EXPECT_EQ(Take(), 1);
  Complete(1);
  EXPECT_EQ(Take(), 2);
  // An earlier question for the second lease would say that the first one is held.
  absl::MutexLock lock(&chief_.mutex);
  ASSERT_EQ(chief_.requests.size(), 2u);
  EXPECT_THAT(chief_.requests[1].held(), IsEmpty());
  ASSERT_EQ(chief_.requests[1].done_size(), 1);
  EXPECT_EQ(chief_.requests[1].done(0).lease(), 1);
}

// The chief may hold the question for work until it knows that the last lease is done.
TEST_F(LeaseClientTest, CompletedBatchesAreReportedWhileACallIsHeld) {
  chief_.Answer(Batch(1));
  Begin(1);
  EXPECT_EQ(Take(), 1);
  ASSERT_TRUE(chief_.Await([&] { return chief_.requests.size() == 2; }));
  Complete(1);
  EXPECT_TRUE(chief_.Await([&] { return chief_.done.size() == 1; }));
  chief_.Answer(EvaluationPart(5));
  EXPECT_EQ(Take(), 5);
  ASSERT_TRUE(chief_.Await([&] { return chief_.requests.back().want() > 0; }));
  proto::EvaluationDone part;
  part.set_lease(5);
  part.add_sums(2.5);
  client_->Complete(part);
  EXPECT_TRUE(chief_.Await([&] { return chief_.evaluated.size() == 1; }));
  proto::NextReply done;
  done.mutable_done();
  chief_.Answer(done);
  EXPECT_EQ(Take(), 0);
}

// To the chief, a lease that is neither held nor done is one whose answer did not arrive: it would
// give it once more.
TEST_F(LeaseClientTest, NoCallOvertakesAReport) {
  chief_.Answer(Batch(1));
  Begin(1);
  EXPECT_EQ(Take(), 1);
  ASSERT_TRUE(chief_.Await([&] { return chief_.requests.size() == 2; }));
  {
    absl::MutexLock lock(&chief_.mutex);
    chief_.slow_to_hear = true;
  }
  std::thread completing([&] { Complete(1); });
  ASSERT_TRUE(chief_.Await([&] { return chief_.hearing == 1; }));
  chief_.Answer(Batch(2));
  chief_.Answer(Batch(3));
  EXPECT_EQ(Take(), 2);
  EXPECT_FALSE(chief_.Await([&] { return chief_.requests.size() > 2; }, absl::Milliseconds(200)));
  {
    absl::MutexLock lock(&chief_.mutex);
    chief_.slow_to_hear = false;
  }
  completing.join();
  EXPECT_EQ(Take(), 3);
  absl::MutexLock lock(&chief_.mutex);
  EXPECT_THAT(chief_.done, ElementsAre(1));
}

// Its examples are there when it may start.
TEST_F(LeaseClientTest, CountsTheLeasesThatAreLoaded) {
  slow_ = 2;
  for (int64_t lease = 1; lease <= 2; ++lease) chief_.Answer(Batch(lease));
  Begin(1);
  EXPECT_EQ(depth_->capacity, 1);
  EXPECT_EQ(Take(), 1);
  EXPECT_TRUE(chief_.Await([&] { return loaded_.size() == 2; })) << "the second one is loading";
  EXPECT_EQ(depth_->ready, 0);
  {
    absl::MutexLock lock(&chief_.mutex);
    slow_ = -1;
    chief_.changed.SignalAll();
  }
  EXPECT_TRUE(AwaitReady(1));
  Complete(1);
  EXPECT_EQ(Take(), 2);
  EXPECT_EQ(depth_->ready, 0);
  client_.reset();
  EXPECT_EQ(depth_->capacity, 0);
}

TEST_F(LeaseClientTest, ALeaseThatWaitsIsLoadedAndTheChiefIsAskedWhenItMayStart) {
  chief_.Answer(Batch(1));
  chief_.Answer(Batch(2, /*wait=*/true));
  Begin(1);
  const auto first = client_->Take();
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(chief_.Await([&] { return chief_.requests.size() == 3; }));
  Complete(1);
  chief_.SetIdle(true);
  const auto none = client_->Take();
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->lease || none->done) << "it is there, and waits";
  const MonotonicTime before = Clock::now();
  chief_.SetIdle(false);
  chief_.Answer(Start(2));
  chief_.Answer(Batch(3));
  auto second = client_->Take();
  while (second.ok() && !second->lease) second = client_->Take();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->lease->id(), 2);
  EXPECT_LT(first->may_start, before);
  EXPECT_LT(second->loaded, before);
  EXPECT_GE(second->may_start, before);
  ASSERT_TRUE(chief_.Await([&] { return loaded_.size() == 3; })) << "the next one is loaded";
  absl::MutexLock lock(&chief_.mutex);
  EXPECT_THAT(loaded_, ElementsAre(1, 2, 3));
  EXPECT_THAT(chief_.requests[2].held(), ElementsAre(1, 2));
  for (const proto::NextRequest& request : chief_.requests)
    EXPECT_FALSE(request.want() > 0 && request.start() != 0) << "it would keep the start waiting";
}

// Others may wait for it.
TEST_F(LeaseClientTest, CompletedBatchesAreReportedWhileTheNextOneIsLoaded) {
  slow_ = 2;
  chief_.Answer(Batch(1));
  chief_.Answer(Batch(2));
  Begin(1);
  EXPECT_EQ(Take(), 1);
  ASSERT_TRUE(chief_.Await([&] { return loaded_.size() == 2; }));
  Complete(1);
  EXPECT_TRUE(chief_.Await([&] { return chief_.done.size() == 1; }));
  {
    absl::MutexLock lock(&chief_.mutex);
    slow_ = -1;
    chief_.changed.SignalAll();
  }
  EXPECT_EQ(Take(), 2);
}

TEST_F(LeaseClientTest, ALostLeaseIsForgotten) {
  chief_.Answer(Batch(1));
  chief_.Answer(Batch(2));
  Begin(1);
  EXPECT_EQ(Take(), 1);
  ASSERT_TRUE(chief_.Await([&] { return loaded_.size() == 2; }));
  proto::NextReply lost;
  lost.mutable_lost()->add_leases(2);
  chief_.Answer(lost);
  chief_.Answer(Batch(3));
  Complete(1);
  ASSERT_TRUE(chief_.Await([&] { return loaded_.size() == 3; }));
  // The second one may have been there before it was known to be lost; not after.
  const int64_t next = Take();
  EXPECT_TRUE(next == 3) << next;
}

// A restarted chief receives all batches that were completed recently, and those that are held.
TEST_F(LeaseClientTest, AChiefThatWasAwayReceivesReportsAgain) {
  chief_.Answer(Batch(1));
  chief_.Answer(Batch(2));
  chief_.Answer(Batch(3));
  Begin(1);
  EXPECT_EQ(Take(), 1);
  Complete(1);
  EXPECT_EQ(Take(), 2);
  ASSERT_TRUE(chief_.Await([&] { return loaded_.size() == 3; }));
  size_t before = 0;
  {
    absl::MutexLock lock(&chief_.mutex);
    chief_.away = true;
    before = chief_.requests.size();
  }
  Complete(2);
  EXPECT_EQ(Take(), 3);
  ASSERT_TRUE(chief_.Await([&] { return chief_.turned_away > 0; }));
  {
    absl::MutexLock lock(&chief_.mutex);
    chief_.away = false;
  }
  ASSERT_TRUE(chief_.Await([&] { return chief_.requests.size() > before; }));
  absl::MutexLock lock(&chief_.mutex);
  const proto::NextRequest& first = chief_.requests[before];
  EXPECT_EQ(first.digest(), "abc");
  ASSERT_EQ(first.done_size(), 2);
  EXPECT_EQ(first.done(0).lease(), 1);
  EXPECT_EQ(first.done(1).lease(), 2);
  EXPECT_THAT(first.held(), ElementsAre(3));
}

// Batches with large metrics, such as a confusion matrix of many classes.
TEST_F(LeaseClientTest, ANewChiefReceivesNoMoreThanItAccepts) {
  constexpr int64_t kBatches = 30;
  constexpr int kSums = 50'000;  // 400 kB a batch, 12 MB in all.
  for (int64_t lease = 1; lease <= kBatches; ++lease) chief_.Answer(Batch(lease));
  Begin(0);
  for (int64_t lease = 1; lease <= kBatches; ++lease) {
    ASSERT_EQ(Take(), lease);
    if (lease == kBatches) {
      absl::MutexLock lock(&chief_.mutex);
      chief_.away = true;
    }
    proto::BatchDone done;
    done.set_lease(lease);
    for (int i = 0; i < kSums; ++i) done.add_metric_sums(1);
    client_->Complete(done);
  }
  ASSERT_TRUE(chief_.Await([&] { return chief_.turned_away > 0; }));
  size_t before = 0;
  {
    absl::MutexLock lock(&chief_.mutex);
    chief_.away = false;
    before = chief_.requests.size();
  }
  ASSERT_TRUE(chief_.Await([&] { return chief_.requests.size() > before; }));
  absl::MutexLock lock(&chief_.mutex);
  const proto::NextRequest& first = chief_.requests[before];
  EXPECT_EQ(first.digest(), "abc");
  ASSERT_GT(first.done_size(), 1);
  EXPECT_EQ(first.done(first.done_size() - 1).lease(), kBatches);
  EXPECT_LT(first.ByteSizeLong(), 6u << 20);
}

// The chief is away while a worker completes many batches: more than fits one report.
TEST_F(LeaseClientTest, BatchesThatNoChiefHasHeardOfAreNotForgotten) {
  constexpr int64_t kBatches = 20;
  constexpr int kSums = 64'000;  // 512 kB a batch.
  proto::NextReply several = Batch(1);
  for (int64_t lease = 2; lease <= kBatches; ++lease) *several.add_more() = Batch(lease).lease();
  chief_.Answer(several);
  Begin(0);
  for (int64_t lease = 1; lease <= kBatches; ++lease) {
    ASSERT_EQ(Take(), lease);
    if (lease == 1) {
      absl::MutexLock lock(&chief_.mutex);
      chief_.away = true;
    }
    proto::BatchDone done;
    done.set_lease(lease);
    for (int i = 0; i < kSums; ++i) done.add_metric_sums(1);
    client_->Complete(done);
  }
  ASSERT_TRUE(chief_.Await([&] { return chief_.turned_away > 0; }));
  {
    absl::MutexLock lock(&chief_.mutex);
    chief_.away = false;
  }
  const auto reported = [&] {
    return std::set<int64_t>(chief_.done.begin(), chief_.done.end()).size();
  };
  EXPECT_TRUE(chief_.Await([&] { return reported() == kBatches; })) << reported();
  absl::MutexLock lock(&chief_.mutex);
  EXPECT_LT(chief_.largest_report, 10u << 20);
}

// It came and went between two questions, so that none failed.
TEST_F(LeaseClientTest, AChiefThatAsksReceivesEverything) {
  chief_.Answer(Batch(1));
  Begin(0);
  EXPECT_EQ(Take(), 1);
  proto::NextReply introduce;
  introduce.mutable_introduce();
  chief_.Answer(introduce);
  chief_.Answer(Batch(2));
  Complete(1);
  EXPECT_EQ(Take(), 2);
  absl::MutexLock lock(&chief_.mutex);
  ASSERT_EQ(chief_.requests.size(), 3u);
  EXPECT_EQ(chief_.requests[1].digest(), "");
  const proto::NextRequest& last = chief_.requests[2];
  EXPECT_EQ(last.digest(), "abc");
  EXPECT_EQ(last.variables_size(), 1);
  ASSERT_EQ(last.done_size(), 1);
  EXPECT_EQ(last.done(0).lease(), 1);
}

TEST_F(LeaseClientTest, WaitingForOthersIsReported) {
  chief_.SetIdle(true);
  Begin(1);
  auto work = client_->Take();
  ASSERT_TRUE(work.ok()) << work.status();
  EXPECT_FALSE(work->lease || work->done);
  chief_.SetIdle(false);
  chief_.Answer(Batch(1));
  do {
    work = client_->Take();
  } while (work.ok() && !work->lease);
  ASSERT_TRUE(work.ok()) << work.status();
  EXPECT_EQ(work->lease->id(), 1);
}

// Pictures are sent once: a repeated report has none, and reports that have not arrived are
// bounded.
TEST_F(LeaseClientTest, WhatWasShownGoesAlongUntilItHasArrived) {
  const auto complete = [&](int64_t lease) {
    proto::BatchDone done;
    done.set_lease(lease);
    done.mutable_shown()->add_images()->set_pixels(std::string(2 << 20, 'x'));
    client_->Complete(done);
  };
  for (int64_t lease = 1; lease <= 8; ++lease) chief_.Answer(Batch(lease));
  Begin(4);
  for (int64_t lease = 1; lease <= 5; ++lease) EXPECT_EQ(Take(), lease);
  complete(1);
  ASSERT_TRUE(chief_.Await([&] { return loaded_.size() == 6; }));
  size_t before = 0;
  {
    absl::MutexLock lock(&chief_.mutex);
    const auto report = std::find_if(chief_.requests.begin(), chief_.requests.end(),
                                     [](const auto& request) { return request.done_size() > 0; });
    ASSERT_NE(report, chief_.requests.end());
    EXPECT_EQ(report->done(0).shown().images_size(), 1);
    chief_.away = true;
    before = chief_.requests.size();
  }
  for (int64_t lease = 2; lease <= 5; ++lease) complete(lease);
  // The current call may not report all batches.
  const int turned_away = [&] {
    absl::MutexLock lock(&chief_.mutex);
    return chief_.turned_away;
  }();
  ASSERT_TRUE(chief_.Await([&] { return chief_.turned_away >= turned_away + 2; }));
  {
    absl::MutexLock lock(&chief_.mutex);
    chief_.away = false;
  }
  ASSERT_TRUE(chief_.Await([&] { return chief_.requests.size() > before; }));
  absl::MutexLock lock(&chief_.mutex);
  const proto::NextRequest& first = chief_.requests[before];
  ASSERT_EQ(first.done_size(), 5);
  std::vector<int64_t> with;
  for (const proto::BatchDone& done : first.done())
    if (done.has_shown()) with.push_back(done.lease());
  EXPECT_THAT(with, ElementsAre(4, 5)) << "as many as it may tell, the newest";
  EXPECT_GT(chief_.largest_report, rpc::kMaxRequestBytes) << "in pieces";
}

// Tells all of them in one go, and asks for work apart from that.
TEST_F(LeaseClientTest, LargeIntegerBuffersComeInPieces) {
  const std::string large(push_pull::kMaxIntegerBytes, 'i');
  chief_.Answer(Batch(1));
  chief_.Answer(Batch(2));
  Begin(0);
  EXPECT_EQ(Take(), 1);
  client_->ReportIntegers({{"net.queue", large}}, 1);
  proto::BatchDone done;
  done.set_lease(1);
  client_->Complete(done);
  EXPECT_EQ(Take(), 2);
  absl::MutexLock lock(&chief_.mutex);
  EXPECT_GT(chief_.largest_report, push_pull::kMaxIntegerBytes);
  const auto report = std::find_if(chief_.requests.begin(), chief_.requests.end(),
                                   [](const auto& request) { return request.buffers_size() > 0; });
  ASSERT_NE(report, chief_.requests.end());
  EXPECT_TRUE(report->buffers().at("net.queue") == large);
  EXPECT_THAT(chief_.done, ElementsAre(1)) << "once";
}

TEST_F(LeaseClientTest, AChiefThatDoesNotComeBackIsAnError) {
  patience_ = std::chrono::milliseconds(200);
  chief_.away = true;
  Begin(1);
  const auto work = client_->Take();
  EXPECT_TRUE(absl::IsDeadlineExceeded(work.status())) << work.status();
  EXPECT_THAT(std::string(Message(work.status())), HasSubstr("gave no work for 0.2 s"));
}

TEST_F(LeaseClientTest, ErrorsOfLoadingAndRefusalsEndIt) {
  bad_ = 1;
  chief_.Answer(Batch(1));
  Begin(1);
  EXPECT_EQ(ExitCodeOf(client_->Take().status()), ExitCode::kDataDamaged);
  client_.reset();
  {
    absl::MutexLock lock(&chief_.mutex);
    chief_.refusal = "the shape of net.w: [3, 2] there, [3, 1] here";
  }
  Begin(1);
  const auto work = client_->Take();
  EXPECT_EQ(ExitCodeOf(work.status()), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(work.status())), HasSubstr("the shape of net.w"));
}

TEST_F(LeaseClientTest, ViewsAreCompleteOrWaitedFor) {
  proto::View torn, whole;
  torn.set_number(5);
  torn.add_shards()->set_primary(-1);
  whole.set_number(6);
  whole.add_shards()->set_primary(1);
  chief_.views = {torn, whole};
  Begin(1);
  bool abandon = false;
  const auto view = client_->NextView(4, &abandon);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->number(), 6u);
  {
    absl::MutexLock lock(&chief_.mutex);
    chief_.abandon = true;
  }
  EXPECT_FALSE(client_->NextView(6, &abandon).ok());
  EXPECT_TRUE(abandon);
}

TEST_F(LeaseClientTest, StopWakesAllWaiters) {
  Begin(1);
  ASSERT_TRUE(chief_.Await([&] { return !chief_.requests.empty(); }));
  std::thread taker([&] { EXPECT_TRUE(absl::IsAborted(client_->Take().status())); });
  std::thread viewer([&] {
    bool abandon = false;
    EXPECT_TRUE(absl::IsAborted(client_->NextView(9, &abandon).status()));
  });
  client_->Stop(Superseded("the job has ended"));
  taker.join();
  viewer.join();
}

}  // namespace
}  // namespace muster::worker
