// Tasks, a chief and somebody who asks, in one process.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <thread>

#include "chief/trace_service.h"
#include "common/flight/trace_file.h"
#include "common/rpc/server/server.h"
#include "common/session/trace_client.h"
#include "muster/json.h"
#include "tests/unit/checkpoint/memory_file_system.h"

namespace muster::chief {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

// A task that makes a step each millisecond.
class SteppingTask {
 public:
  SteppingTask(std::string name, std::shared_ptr<grpc::Channel> channel) {
    TraceClientOptions options;
    options.channel = [this, channel] {
      calls_ = recorder_->recording() ? calls_ + 1 : 0;
      return channel;
    };
    options.task = std::move(name);
    options.cluster_digest = "digest-a";
    options.host = "host-a";
    options.recorder = recorder_;
    options.retry = milliseconds(20);
    options.deadline = minutes(1);
    client_ = std::make_unique<TraceClient>(options);
    loop_ = std::thread([this] {
      const SpanThread thread(recorder_, "main loop");
      for (int64_t step = 1; !stop_; ++step) {
        while (step > last_ && !stop_) std::this_thread::sleep_for(milliseconds(1));
        EnterSpanStep(step);
        const Span span("step");
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
  }
  ~SteppingTask() {
    stop_ = true;
    loop_.join();
    client_.reset();
  }
  void Leave() { client_.reset(); }
  // Its loop runs to this step and stops there.
  void GoOnTo(int64_t last) { last_ = last; }
  int64_t step() const { return recorder_->step(); }
  // It records, and knows which steps: the first call while it records asks for them.
  bool Records() const { return calls_ > 1; }

 private:
  const std::shared_ptr<SpanRecorder> recorder_ = std::make_shared<SpanRecorder>();
  std::atomic<int> calls_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> last_ = kNoEnd;
  std::unique_ptr<TraceClient> client_;
  std::thread loop_;
};

class Tracing : public ::testing::Test {
 protected:
  Tracing() { Open({"chief:0", "worker:0"}); }
  ~Tracing() override { Shut(); }
  void Shut() {
    tasks_.clear();
    service_->Close(seconds(1));
    server_->Shutdown(Duration::zero());
    server_.reset();
    std::filesystem::remove_all(disk_);
  }
  void Open(std::vector<std::string> tasks, bool on_disk = false) {
    TraceServiceOptions options;
    options.model_dir = on_disk ? disk_.string() : "/model";
    options.cluster_digest = "digest-a";
    options.run_id = [] { return "run-a"; };
    options.fence = [this] {
      return replaced_ ? PeerLost("another chief owns the folder") : absl::OkStatus();
    };
    options.tasks = std::move(tasks);
    options.files = on_disk ? &checkpoint::PosixFileSystem() : &files_;
    options.keep = 2;
    service_ = TraceService::Make(options);
    auto server = rpc::Server::Start({.address = "127.0.0.1:0"}, {service_->service()});
    ASSERT_TRUE(server.ok()) << Message(server.status());
    server_ = *std::move(server);
    channel_ = *rpc::MakeChannel("127.0.0.1:" + std::to_string(server_->port()));
  }
  void StartTasks(const std::vector<std::string>& names) {
    for (const std::string& name : names)
      tasks_.push_back(std::make_unique<SteppingTask>(name, channel_));
  }
  grpc::Status Ask(int steps, Duration limit, proto::TraceRecordReply* reply) {
    proto::TraceRecordRequest request;
    request.set_steps(steps);
    request.set_limit_ms(std::chrono::duration_cast<milliseconds>(limit).count());
    return proto::Trace::NewStub(channel_)->Record(rpc::WithDeadline(minutes(2)).get(), request,
                                                   reply);
  }
  // Asks until all tasks have opened their calls.
  proto::TraceRecordReply AskAll(int steps) {
    proto::TraceRecordReply reply;
    for (int i = 0; i < 100; ++i) {
      reply.Clear();
      EXPECT_TRUE(Ask(steps, seconds(10), &reply).ok());
      if (reply.missing().empty()) break;
    }
    return reply;
  }
  // Their loops stand still: they hold up each trace until its limit.
  void FreezeTasks() {
    for (const auto& task : tasks_) task->GoOnTo(0);
  }
  void AwaitTasks(const std::function<bool(const SteppingTask&)>& condition) {
    const MonotonicTime until = Clock::now() + minutes(1);
    for (const auto& task : tasks_) {
      while (!condition(*task) && Clock::now() < until)
        std::this_thread::sleep_for(milliseconds(1));
      EXPECT_TRUE(condition(*task));
    }
  }
  Json Read(const std::string& path) {
    const auto text = checkpoint::ReadFile(files_, path);
    EXPECT_TRUE(text.ok()) << path;
    auto json = ParseJson(text.value_or("{}"), path);
    EXPECT_TRUE(json.ok());
    return json.value_or(Json::object());
  }
  // Puts a request into the model_dir, as `muster trace MODEL_DIR` does.
  void Mail(const std::string& id, int steps, double limit_seconds) {
    ASSERT_TRUE(checkpoint::MakeDirectories(files_, "/model/trace").ok());
    auto file = *files_.Create("/model/trace/request.part");
    const Json request = {{"id", id}, {"steps", steps}, {"limit_seconds", limit_seconds}};
    ASSERT_TRUE(file->Append(Dump(request)).ok());
    ASSERT_TRUE(file->Close().ok());
    ASSERT_TRUE(files_.Rename("/model/trace/request.part", "/model/trace/request.json").ok());
  }
  // Blocks until the chief has answered it. Null: it has not.
  Json AwaitMail(const std::string& id) {
    const std::string answer = "/model/trace/" + TraceAnswerFile(id);
    const MonotonicTime until = Clock::now() + minutes(1);
    while (!files_.Exists(answer).value_or(false)) {
      if (Clock::now() > until) return Json();
      std::this_thread::sleep_for(milliseconds(10));
    }
    return Read(answer);
  }
  const std::filesystem::path disk_ =
      std::filesystem::path(::testing::TempDir()) / ("trace_test." + std::to_string(getpid()));
  std::atomic<bool> replaced_ = false;
  checkpoint::MemoryFileSystem files_;
  std::unique_ptr<TraceService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::vector<std::unique_ptr<SteppingTask>> tasks_;
};

TEST_F(Tracing, AllTasksRecordTheSameSteps) {
  StartTasks({"chief:0", "worker:0"});
  const proto::TraceRecordReply reply = AskAll(4);
  EXPECT_THAT(reply.missing(), IsEmpty());
  EXPECT_THAT(reply.tasks(), ElementsAre("chief:0", "worker:0"));
  EXPECT_EQ(reply.last_step(), reply.first_step() + 3);
  EXPECT_EQ(reply.path(), "/model/trace/" + TraceFile(reply.first_step()));
  const Json trace = Read(reply.path());
  for (const Json& task : trace.at("otherData").at("tasks")) {
    EXPECT_EQ(task.at("first_step"), reply.first_step());
    EXPECT_EQ(task.at("last_step"), reply.last_step());
    EXPECT_EQ(task.at("clock").at("shared"), true);
    EXPECT_GT(task.at("clock").at("round_trips"), 0);
  }
  // The caller gets the file too.
  proto::TraceReadRequest request;
  request.set_id(reply.id());
  proto::TraceReadReply piece;
  const auto stub = proto::Trace::NewStub(channel_);
  ASSERT_TRUE(stub->Read(rpc::WithDeadline(minutes(1)).get(), request, &piece).ok());
  EXPECT_EQ(piece.piece(), checkpoint::ReadFile(files_, reply.path()).value_or(""));
  EXPECT_EQ(static_cast<int64_t>(piece.piece().size()), reply.size());
  request.set_id(reply.id() + 1);
  EXPECT_EQ(stub->Read(rpc::WithDeadline(minutes(1)).get(), request, &piece).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(Tracing, OnlyTheNewestFilesStay) {
  StartTasks({"chief:0", "worker:0"});
  for (int i = 0; i < 4; ++i) AskAll(1);
  EXPECT_THAT(files_.List("/model/trace").value_or(std::vector<std::string>()), SizeIs(2));
}

TEST_F(Tracing, TheFilesThatWereWrittenLastStayWhateverTheirSteps) {
  Shut();
  const std::filesystem::path folder = disk_ / kTraceFolder;
  std::filesystem::create_directories(folder);
  const auto now = std::filesystem::file_time_type::clock::now();
  const auto write = [&](const std::string& name, std::chrono::minutes age) {
    std::ofstream(folder / name) << "{}";
    std::filesystem::last_write_time(folder / name, now - age);
  };
  // These files are of a run that came further and was started again from an earlier checkpoint.
  write(TraceFile(90000000), std::chrono::minutes(3));
  write(TraceFile(90000001), std::chrono::minutes(2));
  write(TraceFile(80000000), std::chrono::minutes(1));
  write(TraceAnswerFile("01"), std::chrono::minutes(90));
  write(TraceAnswerFile("02"), std::chrono::minutes(1));
  write("request-03.part", std::chrono::minutes(90));
  Open({"chief:0"}, /*on_disk=*/true);
  StartTasks({"chief:0"});
  proto::TraceRecordReply reply;
  do {
    reply.Clear();
    ASSERT_TRUE(Ask(1, seconds(10), &reply).ok());
  } while (reply.tasks().empty());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, UnorderedElementsAre(TraceFile(reply.first_step()), TraceFile(80000000),
                                          TraceAnswerFile("02")));
}

TEST_F(Tracing, ATaskThatIsNotThereIsNamed) {
  StartTasks({"chief:0"});
  proto::TraceRecordReply reply;
  do {
    reply.Clear();
    ASSERT_TRUE(Ask(2, seconds(1), &reply).ok());
  } while (reply.missing_size() == 2);  // Not even the other one had come yet.
  EXPECT_THAT(reply.tasks(), ElementsAre("chief:0"));
  EXPECT_THAT(reply.missing(), ElementsAre("worker 0: it was not connected to the chief"));
}

TEST_F(Tracing, ATaskThatLeavesInTheMiddleDeliversWhatItHas) {
  StartTasks({"chief:0", "worker:0"});
  AskAll(1);
  FreezeTasks();
  proto::TraceRecordReply reply;
  std::thread asking([&] { EXPECT_TRUE(Ask(1000, minutes(1), &reply).ok()); });
  AwaitTasks([](const SteppingTask& task) { return task.Records(); });
  // All of them are in the middle of the window, which begins after the latest of them.
  int64_t middle = 0;
  for (const auto& task : tasks_) middle = std::max(middle, task->step() + 10);
  for (const auto& task : tasks_) task->GoOnTo(middle);
  AwaitTasks([middle](const SteppingTask& task) { return task.step() == middle; });
  for (const auto& task : tasks_) task->Leave();
  asking.join();
  EXPECT_THAT(reply.tasks(), ElementsAre("chief:0", "worker:0"));
  EXPECT_LT(reply.last_step(), reply.first_step() + 999);
}

TEST_F(Tracing, OneTraceAtATimeAndOnlySensibleOnes) {
  StartTasks({"chief:0", "worker:0"});
  AskAll(1);
  proto::TraceRecordReply reply, other;
  EXPECT_THAT(Ask(0, seconds(1), &other).error_message(), HasSubstr("steps must be 1 to 1000"));
  EXPECT_THAT(Ask(1, seconds(601), &other).error_message(), HasSubstr("limit"));
  FreezeTasks();
  std::thread asking([&] { EXPECT_TRUE(Ask(300, minutes(1), &reply).ok()); });
  AwaitTasks([](const SteppingTask& task) { return task.Records(); });
  EXPECT_EQ(Ask(1, seconds(1), &other).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (const auto& task : tasks_) task->GoOnTo(kNoEnd);
  asking.join();
}

TEST_F(Tracing, ACallerWhoGoesAwayDoesNotBlockOthers) {
  StartTasks({"chief:0", "worker:0"});
  AskAll(1);
  FreezeTasks();
  proto::TraceRecordRequest request;
  request.set_steps(100);
  request.set_limit_ms(600'000);
  proto::TraceRecordReply reply, other;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + minutes(2));
  std::thread asking([&] {
    EXPECT_EQ(proto::Trace::NewStub(channel_)->Record(&context, request, &reply).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  AwaitTasks([](const SteppingTask& task) { return task.Records(); });
  EXPECT_EQ(Ask(1, seconds(1), &other).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  context.TryCancel();
  asking.join();
  grpc::Status status;
  const MonotonicTime until = Clock::now() + minutes(1);
  do {
    status = Ask(1, milliseconds(500), &other);
  } while (!status.ok() && Clock::now() < until);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(Tracing, StrangersAreRefused) {
  const auto stub = proto::Trace::NewStub(channel_);
  proto::TraceAwaitRequest request;
  request.set_task("worker:0");
  request.set_cluster_digest("digest-b");
  proto::TraceAwaitReply reply;
  EXPECT_EQ(stub->Await(rpc::WithDeadline(minutes(1)).get(), request, &reply).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  request.set_cluster_digest("digest-a");
  request.set_task("worker:9");
  EXPECT_EQ(stub->Await(rpc::WithDeadline(minutes(1)).get(), request, &reply).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  grpc::ClientContext without_deadline;
  EXPECT_EQ(stub->Await(&without_deadline, request, &reply).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(Tracing, ARequestThroughTheModelDirIsAnswered) {
  StartTasks({"chief:0", "worker:0"});
  Json given;
  const MonotonicTime until = Clock::now() + minutes(1);
  do {  // Until both tasks have opened their calls.
    Mail("0a1b", 2, 10);
    given = AwaitMail("0a1b");
    ASSERT_TRUE(given.is_object());
    ASSERT_TRUE(files_.Remove("/model/trace/" + TraceAnswerFile("0a1b")).ok());
  } while (given.at("tasks").size() < 2 && Clock::now() < until);
  EXPECT_THAT(given.at("tasks"), ElementsAre("chief:0", "worker:0"));
  EXPECT_TRUE(files_.Exists("/model/trace/" + given.at("file").get<std::string>()).value_or(false));
  EXPECT_FALSE(files_.Exists("/model/trace/request.json").value_or(true));
}

TEST_F(Tracing, ARequestThroughTheModelDirIsRefusedWhileAnotherIsRecorded) {
  StartTasks({"chief:0", "worker:0"});
  AskAll(1);
  FreezeTasks();
  proto::TraceRecordReply reply;
  std::thread asking([&] { EXPECT_TRUE(Ask(1, minutes(2), &reply).ok()); });
  AwaitTasks([](const SteppingTask& task) { return task.Records(); });
  Mail("0a1b", 2, 10);
  const Json given = AwaitMail("0a1b");
  for (const auto& task : tasks_) task->GoOnTo(kNoEnd);
  asking.join();
  ASSERT_TRUE(given.is_object());
  EXPECT_THAT(given.value("error", ""), HasSubstr("another trace is being recorded"));
  EXPECT_EQ(given.value("exit_code", 0), static_cast<int>(ExitCode::kRetryable));
  Mail("0a1c", 0, 10);
  const Json senseless = AwaitMail("0a1c");
  ASSERT_TRUE(senseless.is_object());
  EXPECT_EQ(senseless.value("exit_code", 0), static_cast<int>(ExitCode::kConfiguration));
}

TEST_F(Tracing, AChiefThatWasReplacedLeavesARequestToItsSuccessor) {
  replaced_ = true;
  Mail("0a1b", 2, 10);
  std::this_thread::sleep_for(milliseconds(1500));
  EXPECT_TRUE(files_.Exists("/model/trace/request.json").value_or(false));
  replaced_ = false;
  StartTasks({"chief:0", "worker:0"});
  EXPECT_TRUE(AwaitMail("0a1b").is_object());
}

TEST_F(Tracing, TheEndOfTheJobEndsHeldCalls) {
  StartTasks({"chief:0", "worker:0"});
  AskAll(1);
  const MonotonicTime begin = Clock::now();
  service_->Close(seconds(1));
  server_->Shutdown(minutes(2));
  EXPECT_LT(Clock::now() - begin, minutes(1));
}

TEST(TraceClientTest, TheShortestRoundTripGivesTheOffset) {
  EXPECT_EQ(OffsetOf({}).error_ns, 0);
  const MeasuredOffset offset =
      OffsetOf({{100, 500, 9'000}, {1'000, 1'100, 6'050}, {2'000, 2'900, 0}});
  EXPECT_EQ(offset.offset_ns, 5'000);
  EXPECT_EQ(offset.error_ns, 51);
}

TEST(TraceClientTest, OnlyLanesWithSpansAreSent) {
  SpanRecord record;
  const MonotonicTime now = Clock::now();
  for (int i = 0; i < 300; ++i) record.lanes.push_back("shard 0, worker " + std::to_string(i));
  for (const int lane : {299, 7, 299})
    record.spans.push_back({.name = "update chunk", .lane = lane, .begin = now, .end = now});
  const auto pieces = TracePieces(record);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_THAT(pieces[0].lanes(), ElementsAre("shard 0, worker 299", "shard 0, worker 7"));
  EXPECT_EQ(pieces[0].spans(0).lane(), 0u);
  EXPECT_EQ(pieces[0].spans(1).lane(), 1u);
  EXPECT_EQ(pieces[0].spans(2).lane(), 0u);
}

TEST(TraceClientTest, ManySpansTravelInPieces) {
  SpanRecord record;
  record.lanes = {"main loop"};
  const MonotonicTime now = Clock::now();
  for (int i = 0; i < 20'000; ++i)
    record.spans.push_back({.name = i % 2 == 0 ? "step" : "save", .begin = now, .end = now});
  const auto pieces = TracePieces(record);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_THAT(pieces[0].names(), ElementsAre("step", "save"));
  EXPECT_FALSE(pieces[1].last());
  EXPECT_TRUE(pieces[2].last());
  for (const auto& piece : pieces) EXPECT_LT(piece.ByteSizeLong(), size_t{1} << 20);
}

}  // namespace
}  // namespace muster::chief
