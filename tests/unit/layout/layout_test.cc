// The folders are the architecture (docs/architecture.md): which folder may include which, over the
// whole tree, and which namespace a room has; and no source file names a path of somebody's
// machine.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/paths.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;

// Arrows only point up this list: a folder may include itself and those before it.
const std::vector<std::string> kCommon = {
    "base",    "cluster",   "flight",     "security",  "rpc",     "transport",
    "optim",   "push_pull", "collective", "data",      "nn",      "checkpoint",
    "summary", "job",       "web",        "telemetry", "process", "metrics",
    "train",   "session",   "membership", "exported"};
const std::set<std::string> kRoles = {"chief", "worker", "ps", "evaluator"};
// Top folders, and what each may include besides itself and the public headers, which are in
// include/ and stand on their own. Roles meet only in their main.cc.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"include", {}},
    {"proto", {}},
    {"common", {"proto"}},
    {"chief", {"common", "proto"}},
    {"worker", {"common", "proto"}},
    {"ps", {"common", "proto"}},
    {"evaluator", {"common", "proto"}},
    {"deploy", {"common", "proto"}},
    {"examples", {"common"}},
    {"bench", {"common", "proto", "chief", "worker", "ps", "evaluator", "examples"}},
    {"tests",
     {"common", "proto", "chief", "worker", "ps", "evaluator", "deploy", "examples", "bench"}},
};
constexpr char kOutside[] =
    "a program includes <muster/...> and files of its folder, \"models/models.h\"";
constexpr char kTree[] = "a file includes \"folder/file.h\", from the top of the tree";

// The folder at a depth of a path: FolderAt("common/data/files/idx.cc", 1) is "data".
std::string FolderAt(const std::string& path, int depth) {
  std::istringstream parts(path);
  std::string part;
  for (; depth >= 0; --depth) {
    part.clear();
    std::getline(parts, part, '/');
  }
  return part;
}

int CommonRank(const std::string& folder) {
  return static_cast<int>(std::find(kCommon.begin(), kCommon.end(), folder) - kCommon.begin());
}

// Why `file` may not include `include` (both from the top of the tree); "" if it may.
std::string Violation(const std::string& file, const std::string& include) {
  const std::string from = FolderAt(file, 0), to = FolderAt(include, 0);
  const auto rule = kMayInclude.find(from);
  if (rule == kMayInclude.end()) return "this folder is not in the architecture";
  if (to == "muster") return "";
  // Programs are written as anybody's are outside the tree; what finds them by name is not.
  if (from == "examples" && fs::path(file).stem() != "programs")
    return kMayInclude.contains(to) || include.find("..") != include.npos ? kOutside : "";
  if (!kMayInclude.contains(to)) return kTree;
  if (from == "common" && to == "common") {
    const std::string lower = FolderAt(file, 1), upper = FolderAt(include, 1);
    if (CommonRank(upper) == static_cast<int>(kCommon.size())) return "no such folder of common";
    if (CommonRank(upper) <= CommonRank(lower)) return "";
    return fmt::format("common/{} lies below common/{}", lower, upper);
  }
  if (from == to || rule->second.contains(to)) return "";
  const bool composes =
      (kRoles.contains(from) || from == "deploy") && fs::path(file).filename() == "main.cc";
  if (composes && (kRoles.contains(to) || to == "examples")) return "";
  return fmt::format("{} must not include {}", from, to);
}

TEST(LayoutRule, KnowsRightFromWrong) {
  EXPECT_EQ(Violation("common/train/loop/loop.cc", "common/data/pipeline.h"), "");
  EXPECT_EQ(Violation("common/train/loop/loop.cc", "common/train/loop/loop.h"), "");
  EXPECT_EQ(Violation("common/data/files/idx.cc", "common/job/job.h"),
            "common/data lies below common/job");
  EXPECT_EQ(Violation("examples/programs/linear.cc", "muster/program.h"), "");
  EXPECT_EQ(Violation("include/muster/step.h", "muster/handles.h"), "");
  EXPECT_EQ(Violation("include/muster/step.h", "common/job/job.h"),
            "include must not include common");
  EXPECT_EQ(Violation("common/base/json/json.cc", "common/cluster/task.h"),
            "common/base lies below common/cluster");
  EXPECT_EQ(Violation("common/rpc/server/server.cc", "chief/coordinator/coordinator.h"),
            "common must not include chief");
  EXPECT_EQ(Violation("chief/coordinator/coordinator.cc", "worker/task.h"),
            "chief must not include worker");
  EXPECT_EQ(Violation("chief/main.cc", "common/membership/member.h"), "");
  EXPECT_EQ(Violation("chief/coordinator/coordinator.cc", "proto/control.grpc.pb.h"), "");
  EXPECT_EQ(Violation("worker/main.cc", "deploy/launcher.h"), "worker must not include deploy");
  EXPECT_EQ(Violation("deploy/launch.cc", "chief/coordinator/coordinator.h"),
            "deploy must not include chief");
  EXPECT_EQ(Violation("chief/main.cc", "coordinator.h"), kTree);
  EXPECT_EQ(Violation("tests/unit/x_test.cc", "common/membership/member.h"), "");
  EXPECT_EQ(Violation("examples/programs/linear.cc", "builtin.h"), "");
  EXPECT_EQ(Violation("examples/programs/linear.cc", "models/models.h"), "");
  EXPECT_EQ(Violation("examples/programs/linear.cc", "../programs.h"), kOutside);
  EXPECT_EQ(Violation("examples/programs/linear.cc", "models/../../programs.h"), kOutside);
  EXPECT_EQ(Violation("examples/programs/linear.cc", "common/base/hash.h"), kOutside);
  EXPECT_EQ(Violation("examples/programs.cc", "common/train/plugin.h"), "");
  EXPECT_EQ(Violation("deploy/tool/main.cc", "examples/programs.h"), "");
  EXPECT_EQ(Violation("deploy/tool/check/check.cc", "examples/programs.h"),
            "deploy must not include examples");
}

struct SourceFile {
  std::string path;  // from the top of the tree
  std::string text;
};

// Everything that is written by hand: no build folders, runs, caches or hidden folders.
std::vector<SourceFile> ReadTree() {
  const fs::path top = testing_support::SourceDir();
  std::vector<SourceFile> files;
  for (auto it = fs::recursive_directory_iterator(top); it != fs::recursive_directory_iterator();
       ++it) {
    const std::string name = it->path().filename();
    const bool skipped = name == "build" || name.starts_with("build-") || name == "install" ||
                         name == "runs" || name == "__pycache__" || name == ".git";
    if (skipped) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file()) continue;
    std::stringstream text;
    text << std::ifstream(it->path(), std::ios::binary).rdbuf();
    files.push_back({fs::relative(it->path(), top).string(), text.str()});
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

bool IsCpp(const std::string& path) {
  const std::string extension = fs::path(path).extension();
  return extension == ".h" || extension == ".cc" || extension == ".cu";
}

// The x of a line `#include "x"`; "" for any other line.
std::string QuotedInclude(std::string_view line) {
  for (const std::string_view token : {"", "#", "include", "\""}) {
    if (!line.starts_with(token)) return "";
    line.remove_prefix(token.size());
    if (token != "\"") line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  }
  return std::string(line.substr(0, line.find('"')));
}

std::vector<std::string> QuotedIncludes(const std::string& text) {
  std::vector<std::string> includes;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (std::string include = QuotedInclude(line); !include.empty()) {
      includes.push_back(std::move(include));
    }
  }
  return includes;
}

TEST(LayoutRule, KnowsAnInclude) {
  EXPECT_EQ(QuotedInclude("#include \"muster/json.h\""), "muster/json.h");
  EXPECT_EQ(QuotedInclude("  #  include \"a/b.h\"  // why"), "a/b.h");
  EXPECT_EQ(QuotedInclude("#include <vector>"), "");
  EXPECT_EQ(QuotedInclude("// #include \"a/b.h\""), "");
}

// Libraries whose documentation asks for quotes: "absl/status/status.h".
bool IsThirdParty(const std::string& include) { return include.rfind("absl/", 0) == 0; }

TEST(SourceLayout, IncludesFollowTheArrows) {
  std::vector<std::string> violations;
  int checked = 0;
  for (const SourceFile& file : ReadTree()) {
    if (!IsCpp(file.path)) continue;
    for (const std::string& include : QuotedIncludes(file.text)) {
      if (IsThirdParty(include)) continue;
      ++checked;
      const std::string why = Violation(file.path, include);
      if (!why.empty()) {
        violations.push_back(fmt::format("{} includes \"{}\": {}", file.path, include, why));
      }
    }
  }
  EXPECT_THAT(violations, IsEmpty());
  EXPECT_GT(checked, 50);  // The tree was really read.
}

TEST(SourceLayout, QuotedIncludesExist) {
  std::vector<std::string> missing;
  for (const SourceFile& file : ReadTree()) {
    if (!IsCpp(file.path)) continue;
    for (const std::string& include : QuotedIncludes(file.text)) {
      const bool generated = include.rfind("proto/", 0) == 0;
      if (IsThirdParty(include) || generated) continue;
      const fs::path top = testing_support::SourceDir();
      const bool found = fs::exists(top / include) || fs::exists(top / "include" / include) ||
                         fs::exists((top / file.path).parent_path() / include);
      if (!found) {
        missing.push_back(fmt::format("{}: {}", file.path, include));
      }
    }
  }
  EXPECT_THAT(missing, IsEmpty());
}

// A larger folder is divided by mechanism (docs/architecture.md). Those of include/ are published.
TEST(SourceLayout, AFolderHasAtMostTwentyFiveFiles) {
  const std::set<std::string> kinds = {".h", ".cc", ".cu", ".py", ".md", ".txt", ".json", ".proto"};
  std::map<std::string, int> files;
  for (const SourceFile& file : ReadTree()) {
    const std::string top = FolderAt(file.path, 0);
    if (!kMayInclude.contains(top) || top == "tests" || top == "include") continue;
    if (kinds.contains(fs::path(file.path).extension())) ++files[fs::path(file.path).parent_path()];
  }
  std::vector<std::string> large;
  for (const auto& [folder, count] : files)
    if (count > 25) large.push_back(fmt::format("{}: {} files", folder, count));
  EXPECT_THAT(large, IsEmpty());
  EXPECT_GT(files.size(), 50u);
}

// Rooms whose files, and those of their sub-folders, open no other namespace than the room's.
const std::map<std::string, std::string> kNamespaces = {
    {"common/push_pull", "muster::push_pull"},
    {"common/collective", "muster::collective"},
    {"common/membership", "muster::membership"},
    {"chief", "muster::chief"},
    {"worker", "muster::worker"},
    {"ps", "muster::ps"},
    {"deploy/ranks", "muster::ranks"},
};

// The x of a line `namespace x {`; "" for any other line, and if the namespace has no name.
std::string OpenedNamespace(std::string_view line) {
  constexpr std::string_view kBegin = "namespace ", kEnd = " {";
  if (!line.starts_with(kBegin) || !line.ends_with(kEnd)) return "";
  if (line.size() < kBegin.size() + kEnd.size()) return "";  // "namespace {"
  line.remove_prefix(kBegin.size());
  line.remove_suffix(kEnd.size());
  return std::string(line);
}

// The first namespace besides `own` that a file opens for more than forward declarations; "" if
// there is none.
std::string ForeignNamespace(const std::string& text, const std::string& own) {
  std::istringstream lines(text);
  std::string foreign;  // Opened, and so far only with forward declarations.
  int depth = 0;        // Of `foreign` and the namespaces in it.
  for (std::string line; std::getline(lines, line);) {
    const std::string opened = OpenedNamespace(line);
    if (depth == 0) {
      if (opened.empty() || opened == own) continue;
      foreign = opened;
      depth = 1;
    } else if (!opened.empty()) {
      ++depth;
    } else if (line.starts_with("}")) {
      --depth;
    } else {
      const bool declares = (line.starts_with("class ") || line.starts_with("struct ")) &&
                            line.find('{') == line.npos;
      if (!declares && !line.empty() && !line.starts_with("//")) return foreign;
    }
  }
  return "";
}

TEST(LayoutRule, KnowsAForeignNamespace) {
  const std::string own = "namespace muster::ps {\nnamespace {\nint a;\n}\nclass B {};\n}\n";
  const auto foreign = [&](const std::string& text) {
    return ForeignNamespace(text, "muster::ps");
  };
  EXPECT_EQ(foreign(own), "");
  EXPECT_EQ(foreign("namespace muster {\nclass A;\nnamespace proto {\nclass B;\n}\n}\n" + own), "");
  EXPECT_EQ(foreign(own + "namespace muster::web {\nstruct A;\n\nvoid F(A* a);\n}\n"),
            "muster::web");
  EXPECT_EQ(foreign("namespace muster {\nclass A;\nclass B {\n};\n}\n"), "muster");
}

TEST(SourceLayout, NamespacesFollowTheRooms) {
  std::vector<std::string> found;
  int checked = 0;
  for (const SourceFile& file : ReadTree()) {
    if (!IsCpp(file.path)) continue;
    for (const auto& [room, own] : kNamespaces) {
      if (!file.path.starts_with(room + "/")) continue;
      ++checked;
      const std::string foreign = ForeignNamespace(file.text, own);
      if (!foreign.empty()) found.push_back(fmt::format("{} opens {}", file.path, foreign));
    }
  }
  EXPECT_THAT(found, IsEmpty());
  EXPECT_GT(checked, 200);
}

// Folders where people and build machines keep their own files; a tree that names one works only
// there. (Temporary files are made by mktemp, testing::TempDir() and their like.)
std::string MachinePath(std::string_view line) {
  constexpr std::string_view kName =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-$";
  for (const std::string_view folder : {"work", "root", "home", "Users", "tmp"}) {
    const std::string prefix = fmt::format("/{}/", folder);
    for (size_t at = line.find(prefix); at != line.npos; at = line.find(prefix, at + 1)) {
      const std::string_view before = line.substr(0, at), after = line.substr(at + prefix.size());
      // In "common/work/x" and "${HOME}/work/x" something else comes before the folder.
      const bool continues = !before.empty() && (kName.find(before.back()) != kName.npos ||
                                                 before.back() == '}' || before.back() == '/');
      const std::string_view name = after.substr(0, after.find_first_not_of(kName));
      if (!continues && !name.empty()) return prefix + std::string(name);
    }
  }
  return "";
}

TEST(LayoutRule, KnowsMachinePaths) {
  const std::string work = "work";
  EXPECT_EQ(MachinePath("path = \"/" + work + "/tree/x\""), "/" + work + "/tree");
  EXPECT_EQ(MachinePath("cd /ro" + std::string("ot/x")), "/ro" + std::string("ot/x"));
  EXPECT_EQ(MachinePath("/usr/share/datasets/fashion-mnist /dev/shm /proc/self/exe"), "");
  EXPECT_EQ(MachinePath("#include \"common/" + work + "/x.h\" // a/" + work + "/b"), "");
  EXPECT_EQ(MachinePath("${HOME}/.cache, https://example.org/home/page"), "");
}

TEST(SourceLayout, NoSourceFileNamesAMachinesPath) {
  std::vector<std::string> found;
  for (const SourceFile& file : ReadTree()) {
    std::istringstream lines(file.text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      const std::string path = MachinePath(line);
      if (!path.empty()) found.push_back(fmt::format("{}:{}: {}", file.path, number, path));
    }
  }
  EXPECT_THAT(found, IsEmpty());
}

}  // namespace
}  // namespace muster
