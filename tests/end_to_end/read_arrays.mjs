// Reads Zarr arrays with zarrita. Standard input: a JSON list of their URLs; standard output: of
// each its data type, its shape, and the SHA-256 of its numbers in C order as they lie in memory.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import * as zarr from "zarrita";

const found = [];
for (const url of JSON.parse(readFileSync(0, "utf8"))) {
    const array = await zarr.open.v3(new zarr.FetchStore(url), { kind: "array" });
    const { data, shape } = await zarr.get(array);
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    found.push({ dtype: array.dtype, shape, sha256 });
}
console.log(JSON.stringify(found));
