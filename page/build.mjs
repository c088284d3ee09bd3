// Builds `dist` from `src`; with --check, says which file of `dist` differs from what it would write.
import { build } from "esbuild";
import { readFileSync, writeFileSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const root = fileURLToPath(new URL(".", import.meta.url));
const dist = join(root, "dist");
/** The most that a browser may have to load, in bytes, compressed. */
const MOST = 200_000;

const result = await build({
  absWorkingDir: root,
  entryPoints: { page: "src/main.tsx", layout: "src/layout.worker.ts" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "inline",
  outdir: dist,
  write: false,
});
const files = new Map(result.outputFiles.map((file) => [file.path.split("/").pop(), Buffer.from(file.contents)]));
files.set("index.html", readFileSync(join(root, "src/index.html")));

const size = [...files.values()].reduce((sum, file) => sum + gzipSync(file).length, 0);
if (size > MOST) throw new Error(`the page has ${size} bytes compressed, more than ${MOST}`);

if (process.argv.includes("--check")) {
  const there = readdirSync(dist).sort();
  const differs = [...files].filter(([name, file]) => !there.includes(name) || !readFileSync(join(dist, name)).equals(file));
  const names = [...differs.map(([name]) => name), ...there.filter((name) => !files.has(name))];
  if (names.length > 0) {
    console.error(`page/dist differs: ${names.join(", ")}; run npm run build`);
    process.exit(1);
  }
} else {
  mkdirSync(dist, { recursive: true });
  for (const [name, file] of files) writeFileSync(join(dist, name), file);
}
console.log(`${files.size} files, ${size} bytes compressed`);
