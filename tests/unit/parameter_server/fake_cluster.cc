#include "tests/unit/parameter_server/fake_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/rpc/channel.h"
#include "common/train/shown.h"

namespace muster::chief::testing {
namespace {

constexpr int64_t kElements = 4;  // The elements of a variable.

std::string ValueBytes(double value) {
  std::string bytes(kElements * sizeof(float), '\0');
  for (int64_t i = 0; i < kElements; ++i) {
    const auto element = static_cast<float>(value);
    std::memcpy(bytes.data() + i * sizeof(float), &element, sizeof element);
  }
  return bytes;
}

double ValueOf(const std::string& bytes) {
  float element = 0;
  std::memcpy(&element, bytes.data(), sizeof element);
  return element;
}

checkpoint::TensorSet SetOf(const std::vector<double>& values) {
  checkpoint::TensorSet set;
  const auto memory = std::make_shared<std::vector<double>>(values);
  set.memory = memory;
  for (const double& value : *memory) {
    checkpoint::Tensor& tensor = set.tensors.emplace_back();
    tensor.name = fmt::format("v{}", set.tensors.size() - 1);
    tensor.dtype = checkpoint::DType::kFloat64;
    tensor.data = reinterpret_cast<const char*>(&value);
  }
  return set;
}

std::vector<double> ValuesIn(const checkpoint::TensorSet& set) {
  std::vector<double> values;
  for (const checkpoint::Tensor& tensor : set.tensors) {
    double& value = values.emplace_back();
    const absl::Status read =
        checkpoint::ReadTensor(set, tensor, 0, sizeof value, reinterpret_cast<char*>(&value));
    EXPECT_TRUE(read.ok()) << Message(read);
  }
  return values;
}

class FakeState final : public ShardState {
 public:
  FakeState(const Job& job, int variables, std::shared_ptr<FakeCallbacks> callbacks)
      : job_(job), callbacks_(std::move(callbacks)) {
    for (int v = 0; v < variables; ++v)
      specs_.push_back({fmt::format("net.v{}", v), {kElements}, 0, {}});
    values_.resize(variables);
  }
  const std::vector<push_pull::VariableSpec>& variables() const override { return specs_; }
  std::vector<std::string> optimizers() const override { return {R"({"name":"sgd"})"}; }
  size_t metric_sums() const override { return 1; }
  int64_t EpochExamples(int64_t train_examples, int64_t) const override { return train_examples; }
  int64_t TotalSteps(int64_t steps_per_epoch) const override {
    return job_.max_steps.value_or(job_.epochs.value_or(1) * steps_per_epoch);
  }
  absl::StatusOr<checkpoint::TrainingState> Restore(const checkpoint::Snapshot& snapshot) override {
    values_ = ValuesOf(snapshot);
    count_ = CountOf(snapshot);
    if (snapshot.state.extras.callbacks)
      for (const auto& [name, step] : snapshot.state.extras.callbacks->kept)
        kept_[name] = {step, ValuesIn(snapshot.kept.at(name))};
    return snapshot.state;
  }
  StateFiles TakeFiles() override { return {SetOf(values_), {}, {}}; }
  absl::StatusOr<proto::ChunkContent> Encode(const push_pull::Layout&, int shard, int chunk,
                                             int64_t steps,
                                             const StateFiles* files) const override {
    proto::ChunkContent content;
    content.set_shard(shard);
    content.set_chunk(chunk);
    content.set_updates(steps);
    double value = (kept_weights_ ? *kept_weights_ : values_)[shard];
    if (files != nullptr)
      MUSTER_RETURN_IF_ERROR(checkpoint::ReadTensor(files->model, files->model.tensors.at(shard), 0,
                                                    sizeof value, reinterpret_cast<char*>(&value)));
    content.set_parameters(ValueBytes(value));
    return content;
  }
  void RetainWeights() override {
    if (!kept_weights_) kept_weights_ = values_;
  }
  void ReleaseWeights() override { kept_weights_.reset(); }
  absl::Status Decode(const push_pull::Layout&, const proto::ChunkContent& content,
                      SlotsFile*) override {
    values_[content.shard()] = ValueOf(content.parameters());
    return absl::OkStatus();
  }
  absl::StatusOr<checkpoint::Snapshot> Take(const checkpoint::TrainingState& state) override {
    checkpoint::Snapshot snapshot;
    snapshot.state = state;
    snapshot.model = SetOf(values_);
    for (const auto& [name, kept] : kept_) snapshot.kept[name] = SetOf(kept.second);
    const auto count = std::make_shared<std::string>(count_);
    snapshot.optimizer.memory = count;
    checkpoint::Tensor& tensor = snapshot.optimizer.tensors.emplace_back();
    tensor.name = "count";
    tensor.dtype = checkpoint::DType::kUInt8;
    tensor.shape = {8};
    tensor.data = count->data();
    return snapshot;
  }
  push_pull::IntegerBuffers Integers() const override { return {{"net.count", count_}}; }
  absl::Status SetIntegers(const push_pull::IntegerBuffers& values) override {
    for (const auto& [name, value] : values) count_ = value;
    return absl::OkStatus();
  }
  std::map<std::string, double> Metrics(const std::vector<double>& sums) const override {
    return {{"count", sums.at(0)}};
  }
  void Describe(StartReport* report) const override { report->program = "fake"; }
  std::vector<HistogramReport> Parameters() const override { return {}; }

  bool has_callbacks() const override { return callbacks_ != nullptr; }
  absl::Status BeginCallbacks(const CallbackParts& parts, bool,
                              checkpoint::CallbackRecord* record) override {
    if (callbacks_->on_begin) callbacks_->on_begin();
    for (const auto& [name, step] : record->kept)
      if (step == parts.weights_step) kept_[name] = {step, values_};
    std::erase_if(record->kept, [&](const auto& item) {
      const auto known = kept_.find(item.first);
      return known == kept_.end() || known->second.first != item.second;
    });
    decision_ = {*record, {}, false};
    for (const auto& [name, note] : record->notes)
      for (Observer* observer : parts.observers) observer->OnCallback(name, note);
    return absl::OkStatus();
  }
  absl::Status Fire(Hook hook, CallbackMoment moment) override {
    if (callbacks_->on_hook) callbacks_->on_hook(hook, moment, &decision_);
    absl::MutexLock lock(&callbacks_->mu);
    callbacks_->fired.emplace_back(hook, std::move(moment));
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<CallbackDecision>> Decide() override {
    for (const auto& [what, callback] : decision_.weights)
      if (what == "keep") kept_[callback] = {decision_.record.kept.at(callback), values_};
    return std::optional(std::exchange(decision_, {decision_.record, {}, false}));
  }
  void Adopt(const checkpoint::CallbackRecord& record) override { decision_.record = record; }
  void PutBackWeights(const std::string& callback) override {
    if (kept_.contains(callback)) values_ = kept_.at(callback).second;
  }

 private:
  const Job job_;
  const std::shared_ptr<FakeCallbacks> callbacks_;
  CallbackDecision decision_;
  // The kept weights of each callback, with their step.
  std::map<std::string, std::pair<int64_t, std::vector<double>>> kept_;
  std::vector<push_pull::VariableSpec> specs_;
  std::vector<double> values_;
  std::optional<std::vector<double>> kept_weights_;
  std::string count_ = "00000000";  // The integer buffer "net.count".
};

}  // namespace

ShardStateFactory FakeStates(int variables, std::shared_ptr<FakeCallbacks> callbacks) {
  return [variables, callbacks](const Job& job, const DirectorStart&) {
    return absl::StatusOr<std::unique_ptr<ShardState>>(
        std::make_unique<FakeState>(job, variables, callbacks));
  };
}

std::string CountOf(const checkpoint::Snapshot& snapshot) {
  return {snapshot.optimizer.tensors.at(0).data, 8};
}

std::vector<double> ValuesOf(const checkpoint::Snapshot& snapshot) {
  return ValuesIn(snapshot.model);
}

int64_t FakeCallbacks::Count(Hook hook) const {
  absl::MutexLock lock(&mu);
  return std::count_if(fired.begin(), fired.end(),
                       [&](const auto& item) { return item.first == hook; });
}

// ---- FakePs

FakePs::FakePs(int task, int) : task_(task) {
  auto server = rpc::Server::Start({.address = "127.0.0.1:0"}, {this});
  EXPECT_TRUE(server.ok()) << Message(server.status());
  server_ = *std::move(server);
}

std::string FakePs::address() const { return fmt::format("127.0.0.1:{}", server_->port()); }

void FakePs::Replace() {
  absl::MutexLock lock(&mu_);
  created_ = false;
  shards_.clear();
  cuts_.clear();
  view_.Clear();
  workers_.clear();
  record_.clear();
  synced_.clear();
}

grpc::Status FakePs::Known() const {
  if (created_) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, "this came before Create");
}

bool FakePs::IsPrimary(uint64_t view, int shard) const {
  return created_ && view_.number() == view && shard < view_.shards_size() &&
         view_.shards(shard).primary() == task_ && shards_.contains(shard);
}

bool FakePs::Push(uint64_t view, int shard, std::pair<uint64_t, int64_t> key, double examples) {
  absl::MutexLock lock(&mu_);
  if (!IsPrimary(view, shard)) return false;
  if (shards_[shard].seen.insert(key).second) shards_[shard].value += examples;
  return true;
}

double FakePs::value(int shard) const {
  absl::MutexLock lock(&mu_);
  const auto found = shards_.find(shard);
  return found == shards_.end() ? -1 : found->second.value;
}

bool FakePs::serves(int shard) const {
  absl::MutexLock lock(&mu_);
  return IsPrimary(view_.number(), shard);
}

bool FakePs::Copy(int shard, const FakePs& from) {
  static absl::Mutex one_at_a_time(absl::kConstInit);
  absl::MutexLock order(&one_at_a_time);
  Shard copy;
  {
    absl::MutexLock lock(&from.mu_);
    const auto found = from.shards_.find(shard);
    if (found == from.shards_.end()) return false;
    copy = found->second;
  }
  absl::MutexLock lock(&mu_);
  if (!created_) return false;
  shards_[shard] = copy;
  return true;
}

void FakePs::SetSynced(std::vector<int> shards) {
  absl::MutexLock lock(&mu_);
  synced_ = std::move(shards);
}

void FakePs::SetWaiting(std::map<int, double> shards) {
  absl::MutexLock lock(&mu_);
  waiting_ = std::move(shards);
}

std::map<int, uint64_t> FakePs::workers() const {
  absl::MutexLock lock(&mu_);
  return workers_;
}

std::string FakePs::digest() const {
  absl::MutexLock lock(&mu_);
  return digest_;
}

std::string FakePs::record() const {
  absl::MutexLock lock(&mu_);
  return record_;
}

void FakePs::FailReads(int count) {
  absl::MutexLock lock(&mu_);
  failing_reads_ = count;
}

void FakePs::LoseViewAnswers(bool lose) {
  absl::MutexLock lock(&mu_);
  lose_view_answers_ = lose;
}

proto::View FakePs::view() const {
  absl::MutexLock lock(&mu_);
  return view_;
}

void FakePs::HoldReads(bool hold) {
  absl::MutexLock lock(&mu_);
  hold_reads_ = hold;
}

void FakePs::OnCut(std::function<void()> on_cut) {
  absl::MutexLock lock(&mu_);
  on_cut_ = std::move(on_cut);
}

int FakePs::reads() const {
  absl::MutexLock lock(&mu_);
  return reads_;
}

grpc::Status FakePs::Create(grpc::ServerContext*, const proto::CreateRequest* request,
                            proto::CreateReply* reply) {
  absl::MutexLock lock(&mu_);
  EXPECT_EQ(request->task(), task_);
  EXPECT_GE(request->epoch(), term_);
  term_ = request->epoch();
  digest_ = request->digest();
  created_ = true;
  reply->set_record(record_);
  reply->set_view(view_.number());
  for (const auto& [shard, state] : shards_) reply->add_serving(shard);
  return grpc::Status::OK;
}

grpc::Status FakePs::SetView(grpc::ServerContext*, const proto::SetViewRequest* request,
                             proto::SetViewReply*) {
  absl::MutexLock lock(&mu_);
  if (!created_) return Known();
  EXPECT_GE(request->view().number(), view_.number());
  if (request->view().number() != view_.number())
    synced_.clear();
  else if (request->view().SerializeAsString() != view_.SerializeAsString())
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "there are two different views");
  view_ = request->view();
  if (lose_view_answers_) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "connection reset");
  return grpc::Status::OK;
}

grpc::Status FakePs::SetWorkers(grpc::ServerContext*, const proto::SetWorkersRequest* request,
                                proto::SetWorkersReply*) {
  absl::MutexLock lock(&mu_);
  if (!created_) return Known();
  workers_ = {request->incarnations().begin(), request->incarnations().end()};
  return grpc::Status::OK;
}

grpc::Status FakePs::Fill(grpc::ServerContext*, grpc::ServerReader<proto::FillRequest>* reader,
                          proto::FillReply*) {
  proto::FillRequest request;
  while (reader->Read(&request)) {
    absl::MutexLock lock(&mu_);
    if (!created_) return Known();
    Shard& shard = shards_[request.chunk().shard()];
    shard = Shard();
    shard.value = ValueOf(request.chunk().parameters());
  }
  return grpc::Status::OK;
}

grpc::Status FakePs::Cut(grpc::ServerContext*, const proto::CutRequest* request,
                         proto::CutReply* reply) {
  absl::ReleasableMutexLock lock(&mu_);
  if (!created_) return Known();
  for (const auto& [shard, state] : shards_) {
    if (!IsPrimary(view_.number(), shard)) continue;
    cuts_[request->name()][shard] = state;
    reply->add_shards(shard);
  }
  const std::function<void()> on_cut = on_cut_;
  lock.Release();
  if (on_cut) on_cut();
  return grpc::Status::OK;
}

grpc::Status FakePs::Read(grpc::ServerContext* context, const proto::ReadRequest* request,
                          grpc::ServerWriter<proto::ChunkContent>* writer) {
  proto::ChunkContent content;
  {
    absl::MutexLock lock(&mu_);
    ++reads_;
    while (hold_reads_ && !context->IsCancelled())
      mu_.AwaitWithTimeout(absl::Condition(
                               +[](bool* hold) { return !*hold; }, &hold_reads_),
                           absl::Milliseconds(20));
    if (failing_reads_ > 0) {
      --failing_reads_;
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the copy is gone");
    }
    const auto cut = cuts_.find(request->name());
    if (cut == cuts_.end() || !cut->second.contains(request->shard()))
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no such copy");
    const Shard& shard = cut->second.at(request->shard());
    content.set_shard(request->shard());
    content.set_parameters(ValueBytes(shard.value));
  }
  writer->Write(content);
  return grpc::Status::OK;
}

grpc::Status FakePs::Drop(grpc::ServerContext*, const proto::DropRequest* request,
                          proto::DropReply*) {
  absl::MutexLock lock(&mu_);
  cuts_.erase(request->name());
  return grpc::Status::OK;
}

grpc::Status FakePs::Beat(grpc::ServerContext*, const proto::BeatRequest* request,
                          proto::BeatReply* reply) {
  absl::MutexLock lock(&mu_);
  if (!created_) return Known();
  if (!request->record().empty()) record_ = request->record();
  reply->set_view(view_.number());
  for (const int shard : synced_) reply->add_synced(shard);
  reply->mutable_waiting()->insert(waiting_.begin(), waiting_.end());
  return grpc::Status::OK;
}

// ---- Notes

Notes::Notes() {
  auto store = checkpoint::Store::Open(
      files, {.directory = "checkpoints", .token = "test", .keep = 1000}, /*restored_step=*/-1);
  EXPECT_TRUE(store.ok()) << Message(store.status());
  store_ = *std::move(store);
}
void Notes::OnStart(const StartReport& report) {
  absl::MutexLock lock(&mu);
  starts.push_back(report);
}
void Notes::OnStep(const StepReport& report) {
  absl::MutexLock lock(&mu);
  told.push_back(report);
}
void Notes::OnEpoch(const EpochReport& report) {
  absl::MutexLock lock(&mu);
  epochs.push_back(report);
}
void Notes::OnSave(int64_t) { std::this_thread::sleep_for(flush); }
void Notes::OnCallback(const std::string& name, const Json& note) {
  absl::MutexLock lock(&mu);
  callbacks[name] = note;
}
void Notes::OnScalars(const std::string&, const ScalarReport& report) {
  absl::MutexLock lock(&mu);
  scalars.push_back(report);
}
void Notes::OnImages(const std::string& split, const ImageReport& report) {
  absl::MutexLock lock(&mu);
  images.emplace_back(split, report);
}
void Notes::OnHistogram(const std::string& split, const HistogramReport& report) {
  if (report.tag.starts_with("staleness/")) return;
  absl::MutexLock lock(&mu);
  histograms.emplace_back(split, report);
}
bool Notes::Wanted(const SaveMoment& moment) {
  if (moment.last || moment.stopping) return true;
  if (moment.validated) return saves_validated && !moment.busy;
  return !moment.busy && (every_steps > 0 && moment.step % every_steps == 0);
}
absl::StatusOr<std::shared_ptr<checkpoint::StagedFile>> Notes::StageFile(const std::string& name) {
  return store_->StageFile(name);
}
void Notes::Save(checkpoint::Snapshot snapshot) {
  const auto path = store_->Write(snapshot);
  ASSERT_TRUE(path.ok()) << Message(path.status());
  auto read = checkpoint::ReadCheckpoint(files, *path);
  ASSERT_TRUE(read.ok()) << Message(read.status());
  read->replaces = snapshot.replaces;
  absl::MutexLock lock(&mu);
  saves.push_back(*std::move(read));
}
int64_t Notes::steps() const {
  absl::MutexLock lock(&mu);
  return told.empty() ? 0 : told.back().step;
}

// ---- FakeCluster

namespace {

// Returns an image of one pixel and a distribution of one number.
proto::Shown ShownBy(int worker) {
  std::vector<std::string> left_out;
  const auto pixel = static_cast<uint8_t>(worker);
  return ToMessage({{"picture", 0, 1, 1, 1, 1, {pixel}}},
                   {{"numbers", 0, summary::DistributionOf({static_cast<double>(worker)})}},
                   &left_out);
}

// Sends a request with Leases.Tell in small pieces.
grpc::Status Tell(proto::Leases::Stub& stub, grpc::ClientContext* context,
                  proto::NextRequest request, proto::NextReply* reply) {
  constexpr size_t kPiece = 100;
  request.set_want(0);
  request.clear_start();
  const std::string all = request.SerializeAsString();
  const auto writer = stub.Tell(context, reply);
  proto::TellPiece piece;
  piece.set_bytes(static_cast<int64_t>(all.size()));
  for (size_t begin = 0; begin < all.size(); begin += kPiece) {
    piece.set_data(all.substr(begin, kPiece));
    if (!writer->Write(piece)) break;
  }
  writer->WritesDone();
  return writer->Finish();
}

bool Shows(const proto::NextRequest& request) {
  const auto shows = [](const auto& done) { return done.has_shown(); };
  return std::any_of(request.done().begin(), request.done().end(), shows) ||
         std::any_of(request.evaluated().begin(), request.evaluated().end(), shows);
}

}  // namespace

struct FakeCluster::Worker {
  proto::Lease waiting;  // The lease that may not start yet.
  int index = 0;
  uint64_t incarnation = 0;
  std::atomic<bool> dead = false, mute = false;
  std::unique_ptr<proto::Leases::Stub> stub;
  proto::View view;
  proto::NextRequest next;
  std::vector<proto::BatchDone> history;
  int64_t sequence = 0;
  int count = -1;               // Its "net.count". -1: the chief has not sent the initial value.
  std::vector<uint64_t> views;  // BatchDone.views of the last push.
  std::thread thread;
};

FakeCluster::FakeCluster(Options options) : options_(std::move(options)) {
  for (int task = 0; task < options_.servers; ++task) {
    ps_.push_back(std::make_unique<FakePs>(task, options_.servers));
    ps_incarnations_.push_back(next_incarnation_++);
  }
  absl::MutexLock lock(&mu_);
  evaluated_[1].resize(options_.validation);
  evaluated_[2].resize(options_.test);
}

FakeCluster::~FakeCluster() {
  for (auto& [index, worker] : workers_) {
    worker->dead = true;
    if (worker->thread.joinable()) worker->thread.join();
  }
  if (director_ != nullptr) director_->Abort(PeerLost("the test is over"));
  if (run_.joinable()) run_.join();
  if (server_ != nullptr) server_->Shutdown(Duration::zero());
}

void FakeCluster::Admit(const std::string& task, uint64_t incarnation, bool again) {
  AdmittedMember member;
  member.task = *ParseTaskId(task);
  member.incarnation = incarnation;
  member.data_address = "127.0.0.1:1";
  member.host_id = "host";
  member.again = again;
  director_->OnAdmitted(member);
}

void FakeCluster::Start(uint32_t term, std::optional<checkpoint::Snapshot> restore) {
  term_ = term;
  DirectorOptions options;
  options.job = options_.job;
  options.workers = options_.workers;
  for (const auto& ps : ps_) options.servers.push_back(ps->address());
  options.term = [term] { return term; };
  options.run_id = [] { return std::string("run"); };
  director_ = MakeDirector(std::move(options), FakeStates(options_.servers, options_.callbacks));
  auto server = rpc::Server::Start({.address = "127.0.0.1:0"}, {director_->service()});
  ASSERT_TRUE(server.ok()) << Message(server.status());
  server_ = *std::move(server);
  {
    absl::MutexLock lock(&mu_);
    address_ = fmt::format("127.0.0.1:{}", server_->port());
  }
  for (int task = 0; task < options_.servers; ++task)
    if (!absent_ps_.contains(task))
      Admit(fmt::format("ps:{}", task), ps_incarnations_[task], term > 1);
  if (term == 1) {
    for (int worker = 0; worker < options_.workers; ++worker) StartWorker(worker);
  } else {
    for (const auto& [index, worker] : workers_)
      if (!worker->dead) Admit(fmt::format("worker:{}", index), worker->incarnation, true);
  }
  DirectorStart start;
  start.train_examples = options_.train;
  start.validation_examples = options_.validation;
  start.test_examples = options_.test;
  start.restore = std::move(restore);
  start.observers = {&notes_};
  start.checkpoints = &notes_;
  over_ = false;
  run_ = std::thread([this, start] {
    outcome_ = director_->Run(start);
    over_ = true;
  });
}

void FakeCluster::RestartChief(std::optional<checkpoint::Snapshot> restore) {
  director_->Abort(PeerLost("killed"));
  if (run_.joinable()) run_.join();
  server_->Shutdown(Duration::zero());
  server_.reset();
  director_.reset();
  Start(term_ + 1, std::move(restore));
}

absl::Status FakeCluster::Await() {
  AwaitThat([this] { return over_.load(); });
  if (!over_) director_->Abort(ProgramError("the job did not end"));
  run_.join();
  for (auto& [index, worker] : workers_) {
    // After a success, workers receive that there is no more work. After a failure they are ended.
    if (!outcome_.ok() && !absl::IsCancelled(outcome_)) worker->dead = true;
    if (worker->thread.joinable()) worker->thread.join();
  }
  return outcome_;
}

void FakeCluster::AwaitThat(const std::function<bool()>& condition) {
  const MonotonicTime deadline = Clock::now() + kPatience;
  while (!condition()) {
    ASSERT_LT(Clock::now(), deadline) << "it did not come about";
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void FakeCluster::LosePs(int task) {
  absent_ps_.insert(task);
  ps_[task]->Replace();
  director_->OnLost({TaskType::kPs, task}, ps_incarnations_[task], "connection refused",
                    /*ended=*/true);
}

void FakeCluster::CutPs(int task) {
  absent_ps_.insert(task);
  director_->OnLost({TaskType::kPs, task}, ps_incarnations_[task], "no heartbeat", /*ended=*/false);
}

void FakeCluster::HealPs(int task) {
  absent_ps_.erase(task);
  Admit(fmt::format("ps:{}", task), ps_incarnations_[task], true);
}

void FakeCluster::ReturnPs(int task) {
  absent_ps_.erase(task);
  ps_incarnations_[task] = next_incarnation_++;
  Admit(fmt::format("ps:{}", task), ps_incarnations_[task], false);
}

void FakeCluster::AdmitAllAgain() {
  for (size_t task = 0; task < ps_.size(); ++task)
    Admit(fmt::format("ps:{}", task), ps_incarnations_[task], true);
  for (const auto& [index, worker] : workers_)
    Admit(fmt::format("worker:{}", index), worker->incarnation, true);
}

void FakeCluster::Mute(int worker) {
  workers_.at(worker)->mute = true;
  workers_.at(worker)->thread.join();
}

void FakeCluster::LoseWorker(int worker) {
  workers_.at(worker)->dead = true;
  if (workers_.at(worker)->thread.joinable()) workers_.at(worker)->thread.join();
  director_->OnLost({TaskType::kWorker, worker}, workers_.at(worker)->incarnation, "killed",
                    /*ended=*/true);
}

void FakeCluster::StartWorker(int index, bool again) {
  auto worker = std::make_unique<Worker>();
  worker->index = index;
  worker->incarnation = incarnations_[index] = next_incarnation_++;
  worker->next.mutable_worker()->set_worker(index);
  worker->next.mutable_worker()->set_incarnation(worker->incarnation);
  worker->next.set_want(true);
  Admit(fmt::format("worker:{}", index), worker->incarnation, again);
  Worker* raw = worker.get();
  workers_[index] = std::move(worker);
  raw->thread = std::thread([this, raw] { RunWorker(raw); });
}

// Pushes a batch to all shards, with newer views if needed. Returns false if the worker must
// abandon the push or is dead.
bool FakeCluster::PushAll(Worker* worker, const proto::Lease& lease) {
  std::map<int, uint64_t> pushed;  // By shard: the view in which the push was acknowledged.
  ++worker->sequence;
  const auto examples = static_cast<double>(lease.end() - lease.begin());
  while (static_cast<int>(pushed.size()) < options_.servers) {
    if (worker->dead) return false;
    for (int shard = 0; shard < worker->view.shards_size(); ++shard) {
      const proto::ShardPlace& place = worker->view.shards(shard);
      if (pushed.contains(shard) || place.primary() < 0) continue;
      FakePs& primary = *ps_[place.primary()];
      const uint64_t view = worker->view.number();
      if (!primary.Push(view, shard, {worker->incarnation, worker->sequence}, examples)) continue;
      // The push is acknowledged once the backup has it.
      if (place.backup() >= 0 && place.backup_in_sync() &&
          !ps_[place.backup()]->Copy(shard, primary))
        continue;
      pushed[shard] = view;
    }
    if (static_cast<int>(pushed.size()) == options_.servers) break;
    proto::GetViewRequest request;
    *request.mutable_worker() = worker->next.worker();
    request.set_newer_than(worker->view.number());
    proto::GetViewReply reply;
    const auto context = rpc::WithDeadline(std::chrono::seconds(5));
    if (!worker->stub->GetView(context.get(), request, &reply).ok()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      worker->stub = nullptr;  // The chief may be a new one, with another address.
      absl::MutexLock lock(&mu_);
      worker->stub = proto::Leases::NewStub(*rpc::MakeChannel(address_));
      continue;
    }
    if (reply.abandon()) return false;
    if (reply.view().number() == 0) continue;
    worker->view = reply.view();
    // A shard that was restored has lost the push and needs it again.
    std::erase_if(pushed, [&](const auto& shard) {
      return shard.second <= worker->view.shards(shard.first).restored();
    });
  }
  worker->views.assign(options_.servers, 0);
  for (const auto& [shard, view] : pushed) worker->views[shard] = view;
  return true;
}

void FakeCluster::RunWorker(Worker* worker) {
  std::string address;
  bool introduce = false;
  while (!worker->dead && !worker->mute) {
    {
      absl::MutexLock lock(&mu_);
      if (worker->stub == nullptr || address != address_) {
        address = address_;
        worker->stub = proto::Leases::NewStub(*rpc::MakeChannel(address));
      }
    }
    if (introduce) {  // A new chief needs all reports.
      worker->next.clear_done();
      for (const proto::BatchDone& done : worker->history) *worker->next.add_done() = done;
    }
    proto::NextReply reply;
    const auto context = rpc::WithDeadline(std::chrono::seconds(5));
    const grpc::Status status = Shows(worker->next)
                                    ? Tell(*worker->stub, context.get(), worker->next, &reply)
                                    : worker->stub->Next(context.get(), worker->next, &reply);
    if (!status.ok()) {
      // The chief was lost, perhaps during the call.
      EXPECT_TRUE(status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                  status.error_code() == grpc::StatusCode::CANCELLED)
          << status.error_message();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      address.clear();
      continue;
    }
    introduce = reply.has_introduce();
    worker->next.set_digest(introduce ? ps_[0]->digest() : "");
    if (introduce) continue;
    if (worker->count < 0) {
      const auto begin = reply.buffers().find("net.count");
      worker->count = begin == reply.buffers().end() ? 0 : std::stoi(begin->second);
    }
    worker->next.clear_buffers();
    worker->next.clear_done();
    worker->next.clear_evaluated();
    if (reply.has_done()) return;
    if (reply.has_lost()) worker->next.clear_held();
    proto::Lease lease = reply.lease();
    if (reply.has_start()) lease = worker->waiting;
    if (reply.has_start() || reply.has_lost()) {
      worker->next.clear_start();
      worker->next.set_want(true);
    }
    if (reply.has_lease() && lease.training().wait()) {
      worker->waiting = lease;
      worker->next.clear_held();
      worker->next.add_held(lease.id());
      worker->next.set_start(lease.id());
      worker->next.set_want(false);
      continue;
    }
    if (lease.has_evaluation()) {
      proto::EvaluationDone& done = *worker->next.add_evaluated();
      done.set_lease(lease.id());
      auto examples = static_cast<double>(lease.end() - lease.begin());
      if (options_.damaged.contains(static_cast<Split>(lease.evaluation().split()))) {
        done.mutable_left_out()->set_examples(lease.end() - lease.begin());
        examples = 0;
      }
      for (const double sum : {examples * 0.25, examples, examples}) done.add_sums(sum);
      if (lease.summary()) *done.mutable_shown() = ShownBy(worker->index);
      absl::MutexLock lock(&mu_);
      for (int64_t i = lease.begin(); i < lease.end(); ++i)
        ++evaluated_[lease.evaluation().split()].at(i);
    }
    if (!lease.has_training()) continue;
    EXPECT_EQ(lease.global_batch_size(), options_.global_batch_size);
    std::this_thread::sleep_for(options_.batch_time);
    worker->next.clear_held();
    worker->next.add_held(lease.id());
    if (!PushAll(worker, lease)) continue;
    worker->next.clear_held();
    proto::BatchDone done;
    done.set_lease(lease.id());
    done.set_examples(lease.end() - lease.begin());
    if (options_.damaged.contains(Split::kTrain)) {
      done.mutable_left_out()->set_examples(done.examples());
      done.set_examples(0);
    }
    done.set_loss(1);
    done.set_learning_rate(0.5);
    done.mutable_views()->Assign(worker->views.begin(), worker->views.end());
    done.set_staleness_max(2);
    done.set_staleness_mean(1);
    done.add_metric_sums(static_cast<double>(lease.end() - lease.begin()));
    if (lease.summary()) *done.mutable_shown() = ShownBy(worker->index);
    *worker->next.add_done() = done;
    (*worker->next.mutable_buffers())["net.count"] = fmt::format("{:08}", ++worker->count);
    worker->next.set_buffers_sequence(static_cast<uint64_t>(worker->sequence));
    worker->history.push_back(done);
    absl::MutexLock lock(&mu_);
    ++batches_[{lease.training().epoch(), lease.begin()}];
  }
}

double FakeCluster::value(int shard) const {
  for (const auto& ps : ps_)
    if (ps->serves(shard)) return ps->value(shard);
  return -1;
}

std::map<std::pair<int64_t, int64_t>, int> FakeCluster::batches() const {
  absl::MutexLock lock(&mu_);
  return batches_;
}

std::vector<int> FakeCluster::evaluated(int split) const {
  absl::MutexLock lock(&mu_);
  return evaluated_.at(split);
}

}  // namespace muster::chief::testing
