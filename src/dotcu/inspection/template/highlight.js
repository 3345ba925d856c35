// Text -> HTML with words coloured, for CUDA C++, PTX and SASS; what is not a known word is escaped text.
const words = (text) => new Set(text.split(" "));
const KEYWORDS = words(
  "alignas auto break case class const constexpr consteval continue default delete do else enum explicit export extern false for " +
  "friend goto if inline mutable namespace new noexcept nullptr operator private protected public requires concept return sizeof " +
  "static static_assert static_cast reinterpret_cast const_cast struct switch template this throw true try catch typedef typename " +
  "union using virtual volatile while asm decltype");
const TYPES = words(
  "void bool char short int long float double half signed unsigned size_t int8_t int16_t int32_t int64_t uint8_t uint16_t " +
  "uint32_t uint64_t uintptr_t float2 float3 float4 double2 int2 int3 int4 uint2 uint3 uint4 dim3 __half __half2 __nv_bfloat16 " +
  "__nv_bfloat162 __nv_fp8_e4m3 __nv_fp8_e5m2");
const BUILTINS = words("threadIdx blockIdx blockDim gridDim warpSize");

const OPCODES = {
  sass: [
    ["local", /^(LDL|STL)/], ["matrix", /^(?:[A-Z]?G?MMA|[A-Z]{2,3}MMA|UTC\w*MMA)/], ["shared", /^(LDS|STS|LDSM|STSM|ATOMS)/],
    ["global", /^(LDG|STG|LD$|ST$|LD\.|ST\.|ATOM|RED|UTMA|UBLKCP|UBLKRED|CCTL)/], ["double", /^(DADD|DMUL|DFMA|DSETP|DMNMX)/],
    ["barrier", /^(BAR|MEMBAR|DEPBAR|LDGDEPBAR|LDDEPBAR|UTMACMDFLUSH|SYNCS|ERRBAR|FENCE|UCGABAR|WARPSYNC|NANOSLEEP|ARRIVES)/],
    ["control", /^(BRA|BRX|JMP|JMX|EXIT|CALL|RET|BSSY|BSYNC|BREAK|BPT|KILL|RPCMOV)/],
  ],
  ptx: [
    ["local", /^(ld|st)(\.\w+)*\.local/], ["matrix", /^(mma|wmma|wgmma|ldmatrix|stmatrix|tcgen05)/],
    ["shared", /^(ld|st|atom|red)(\.\w+)*\.shared/], ["global", /^((ld|st|atom|red|prefetch)(\.\w+)*\.global|cp\.|ldu|discard|ld\.v|st\.v)/],
    ["barrier", /^(bar|barrier|mbarrier|membar|fence)/], ["control", /^(bra|brx|ret|exit|call|trap)/], ["double", /\.f64/],
  ],
};
const CLASS_NAMES = {
  global: "global memory, bulk copies", shared: "shared memory", local: "local memory: spills, indexed arrays",
  matrix: "matrix instructions", double: "double arithmetic", barrier: "barriers and fences", control: "branches and calls",
};

const CUDA = /\/\/.*|\/\*.*?(?:\*\/|$)|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'|^\s*#\s*\w+|\b0[xX][\da-fA-F']+\w*|\b\d[\d.']*(?:[eE][+-]?\d+)?\w*|[A-Za-z_]\w*/g;
const PTX = /\/\/.*|"[^"]*"|%[\w.]+|\$\w+:?|\b_Z\w{20,}?(?=_param_|\b)|\.[a-z]\w*|\b0[fd][\da-fA-F]+|-?\b0x[\da-fA-F]+|-?\b\d+\b/g;
const SASS = /\/\*.*?\*\/|`?\(?(?:\.L_\w+|\$__\w[\w$]*)\)?:?|\b_Z\w{20,}|c\[[^\]]*\]\[[^\]]*\]|\bU?R(?:\d+|Z)(?:\.\w+)*|\b!?U?P(?:\d+|T)\b|\bB\d+\b|SR_[\w.]+|-?\b0x[\da-f]+|-?\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b|\bdesc\b/g;
const OPCODE = { ptx: /^(\s*\{?\s*)(@!?%\w+\s+)?([a-z][\w.:]*)(?![\w:])/, sass: /^(\s*)(@!?U?P\w+\s+)?([A-Z][\w.]*)/ };

const span = (kind, text) => `<span class="${kind}">${escape(text)}</span>`;
function replaceWords(pattern, text, kindOf) {
  let html = "", last = 0;
  for (const match of text.matchAll(pattern)) {
    const kind = kindOf(match[0], match.index, text);
    html += escape(text.slice(last, match.index)) + (kind ? span(kind, match[0]) : escape(match[0]));
    last = match.index + match[0].length;
  }
  return html + escape(text.slice(last));
}

function cudaKind(word, index, text) {
  if (word.startsWith("//") || word.startsWith("/*")) return "c";
  if (word[0] === '"' || word[0] === "'") return "s";
  if (word.trimStart()[0] === "#") return "k";
  if (/^\d/.test(word)) return "n";
  if (KEYWORDS.has(word)) return "k";
  if (TYPES.has(word)) return "t";
  return BUILTINS.has(word) || (word.startsWith("__") && text[index + word.length] !== ":") ? "x" : "";
}
function ptxKind(word) {
  if (word.startsWith("//")) return "c";
  if (word[0] === '"') return "s";
  if (word[0] === "$") return word.endsWith(":") ? "l" : "a";
  if (word.startsWith("_Z")) return "y";
  return { "%": "g", ".": "d" }[word[0]] ?? "n";
}
function sassKind(word) {
  if (word.startsWith("/*")) return "c";
  if (/^[`(]*(\.L_|\$)/.test(word)) return word.endsWith(":") ? "l" : "a";
  if (word.includes("_Z")) return "y";
  if (word.startsWith("c[")) return "q";
  if (word.startsWith("SR_")) return "x";
  if (/^!?U?P/.test(word)) return "p";
  return /^[UB]?R?[\dZ]/.test(word) && !/^\d/.test(word) ? "g" : word === "desc" ? "d" : "n";
}
const WORDS = { ptx: [PTX, ptxKind], sass: [SASS, sassKind] };

function opcodeClass(language, opcode) {
  return OPCODES[language].find(([, pattern]) => pattern.test(opcode))?.[0] ?? "";
}
function codeHtml(language, text) {
  const found = OPCODE[language].exec(text);
  const [pattern, kind] = WORDS[language];
  if (!found) return replaceWords(pattern, text, kind);
  const [all, space, guard, opcode] = found;
  const class_ = opcodeClass(language, opcode);
  return escape(space) + (guard ? span("p", guard) : "") + span(`o ${class_}`, opcode) +
    replaceWords(pattern, text.slice(all.length), kind);
}

// Source knows where comments that span lines begin and end, so it is coloured in order.
function sourceHtml() {
  let inside = false;
  return (text) => {
    let html = "";
    if (inside) {
      const end = text.indexOf("*/");
      if (end < 0) return span("c", text);
      html = span("c", text.slice(0, end + 2));
      text = text.slice(end + 2);
    }
    const bare = text.replace(/\/\*.*?\*\/|"(?:\\.|[^"\\])*"/g, "");
    inside = bare.includes("/*") && !/\/\/.*\/\*/.test(bare);
    return html + replaceWords(CUDA, text, cudaKind);
  };
}
const painter = (language) => (language === "source" ? sourceHtml() : (text) => codeHtml(language, text));
