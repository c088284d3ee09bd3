(* Values of the API as JSON. *)

(** An answer is not what this client's version of the API describes. *)
exception Unexpected of string

let wrong what json =
  let text = Yojson.Safe.to_string json in
  let shown = if String.length text > 200 then String.sub text 0 200 ^ "..." else text in
  raise (Unexpected (Printf.sprintf "not %s: %s" what shown))

let parsed text =
  try Yojson.Safe.from_string text
  with Yojson.Json_error why -> raise (Unexpected ("not JSON: " ^ why))

let string = function `String text -> text | json -> wrong "a text" json
let of_string text = `String text
let bool = function `Bool value -> value | json -> wrong "true or false" json
let of_bool value = `Bool value

(* Counters are 64 bits; integers here have 62 and a sign. *)
let int = function
  | `Int value -> value
  | `Intlit text when text <> "" && text.[0] <> '-' -> max_int
  | json -> wrong "an integer" json

let of_int value = `Int value

let float = function
  | `Float value -> value
  | `Int value -> float_of_int value
  | `Intlit text -> float_of_string text
  | json -> wrong "a number" json

let of_float value = `Float value
let list read = function `List items -> List.map read items | json -> wrong "a list" json
let of_list write items = `List (List.map write items)

let assoc read = function
  | `Assoc members -> List.map (fun (name, value) -> (name, read value)) members
  | json -> wrong "an object" json

let of_assoc write members = `Assoc (List.map (fun (name, value) -> (name, write value)) members)
let nullable read = function `Null -> None | json -> Some (read json)
let of_nullable write = function None -> `Null | Some value -> write value

(* The value of an object's property, if it is there. *)
let member name = function
  | `Assoc members -> List.assoc_opt name members
  | json -> wrong "an object" json

let within name read json =
  try read json with Unexpected why -> raise (Unexpected (Printf.sprintf "%s: %s" name why))

(** A property that is always there. *)
let field read name json =
  match member name json with
  | Some value -> within name read value
  | None -> raise (Unexpected (Printf.sprintf "an object without %s" name))

(** A property that may be left out or null, which mean the same. *)
let optional read name json =
  match member name json with None | Some `Null -> None | Some value -> Some (within name read value)

(** A property that may be left out; what null means is its type's. *)
let present read name json = Option.map (within name read) (member name json)

let some name write value = [ (name, write value) ]
let given name write = function None -> [] | Some value -> [ (name, write value) ]
let record members = `Assoc (List.concat members)

(** A parameter of a query. *)
let parameter name text = function None -> [] | Some value -> [ (name, text value) ]

let text_of_string text = text
let text_of_int = string_of_int
let text_of_bool = string_of_bool
let text_of_float = Printf.sprintf "%.17g"
